/** The bytes that are sent: a report to a collector, or sealed messages to a relay. */

import { join, little, sha256 } from "./bytes.js";
import { below, draw } from "./random.js";
import { seal } from "./sealing.js";

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
  join("SHOAL\x01", plan, little(1, 4), id, little(window, 4), row);

/**
 * The positions of the set bits, at most so many: of an excess, a random part is dropped.
 *
 * @param {Bytes} row
 * @param {number} most
 * @param {import("./random.js").Draw} [source]
 */
export const setPositions = (row, most, source) => {
  const positions = [];
  for (let place = 0; place < 8 * row.length; place++)
    if ((row[place >> 3] >> (place & 7)) & 1) positions.push(place);
  while (positions.length > most) positions.splice(below(positions.length, source), 1);
  return positions;
};

/**
 * The fragments of a report: each the position of a set bit, or the largest that there is.
 *
 * @param {Bytes} row
 * @param {number} messages
 */
export const fragments = (row, messages) => {
  const positions = setPositions(row, messages);
  return Array.from({ length: messages }, (_, place) => little(positions[place] ?? 2 ** 32 - 1, 4));
};

/**
 * The contents of a report's messages, in random order, each with an identifier of its own.
 *
 * @param {Bytes[]} parts of the report
 * @param {import("./random.js").Draw} [source]
 */
export const packMessages = ([...parts], source = draw) => {
  const ids = source(16 * parts.length);
  return parts.map((part, place) => {
    const other = place + below(parts.length - place, source);
    [parts[place], parts[other]] = [parts[other], part];
    return join(ids.slice(16 * place, 16 * place + 16), parts[place]);
  });
};

/**
 * What every message of a plan and window is bound to.
 *
 * @param {Bytes} plan
 * @param {number} window
 */
export const sealingInfo = (plan, window) =>
  join("shoal sealed\0\0\0\0\0\0\x01", plan, little(window, 4));

/**
 * A request with one sealed report.
 *
 * @param {Bytes} plan
 * @param {Bytes} id
 * @param {number} window
 * @param {Bytes} key the public key of the crowd
 * @param {Bytes[]} contents of the messages
 */
export const packSealed = async (plan, id, window, key, contents) =>
  join(
    "SEALED\x01",
    plan,
    little(window, 4),
    await sha256(key),
    little(1, 4),
    id,
    ...(await Promise.all(contents.map((content) => seal(content, key, sealingInfo(plan, window))))),
  );
