/** The bytes that are sent to a collector. */

import { join, little } from "./bytes.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

/**
 * A batch of one report.
 *
 * @param {Bytes} plan the plan's id
 * @param {Bytes} id
 * @param {number} window
 * @param {Bytes} row cohort, if the plan has cohorts, and bits
 */
export const packReport = (plan, id, window, row) =>
  join("SHOAL\x01", plan, little(1), id, little(window), row);
