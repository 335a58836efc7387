/**
 * What a browser checks of a plan before it answers.
 *
 * A plan is known by its id, the hash of its content. The page ships the id, so that anybody who hands
 * out the plan cannot hand out another one.
 */

import { canonical, hex, MOST, must, sha256 } from "./bytes.js";
import { layout } from "./survey.js";

/**
 * @typedef {{cohorts: number | null, crowd_size: number | null, max_reports_per_person: number,
 *   memory: {q1: number[], q2: number[]} | null,
 *   honest_fraction: string | null,
 *   parties: {one_operator: boolean, relay?: string, analyzer?: string, leader?: string,
 *      helper?: string, max_weight?: number} | null,
 *   promise: {kind: string, epsilon: string, delta: string | null, eta: string | null},
 *   q: number[], survey: import("./survey.js").Survey, version: number, view: string,
 *   window: number | null}} Plan
 */

/**
 * Read a plan of whatever origin; it must be the plan that was asked for, and within the limit.
 *
 * @param {string} text
 * @param {string} id
 * @param {number} [limit] the largest local epsilon that is agreed to
 * @returns {Promise<[plan: Plan & {localEpsilon: number}, id: import("./bytes.js").Bytes,
 *   q1: number[], q2: number[], blocks: Map<string, import("./survey.js").Block>, bits: number]>}
 *   `localEpsilon` is what one report, or with memory any number of reports of one answer, reveals
 *   to an observer; q1 flips permanently, where there is memory, and q2 each report
 */
export const readPlan = async (text, id, limit) => {
  const { id: _, ...plan } = JSON.parse(text);
  const { version, q, memory, promise, parties } = plan;
  const { q1 = q, q2 = q } = memory ?? {};
  must(version === 2, `a plan of version ${version} is not known here.`);
  const digest = await sha256(canonical(plan));
  must(hex(digest) == id, "this is another plan.");
  const [blocks, bits, differing, cohorts] = layout(plan.survey);
  must(
    [q, q1, q2].every(
      ([numerator, digits]) => numerator > 0 && digits <= 52 && numerator < 2 ** digits / 2,
    ) &&
      bits <= MOST &&
      (plan.window ?? 3600) >= 3600 &&
      plan.cohorts === cohorts &&
      !(memory && cohorts) &&
      (!parties?.leader || /** @type {number} */ (parties.max_weight) <= ((cohorts ?? 1) < 2 ? bits : 0)),
    "the plan exceeds our bounds.",
  );
  // d ln((1 - q) / q). With log1p no digits are lost near q = 1/2; the last of 16 may be wrong, and
  // a limit that is the exact number with 16 digits must do.
  const [numerator, digits] = q1;
  const localEpsilon = differing * Math.log1p((2 ** digits - 2 * numerator) / numerator);
  const most = limit ?? (promise.kind == "local" ? +promise.epsilon : 0);
  must(
    localEpsilon <= most * (1 + 2 ** -50),
    `the local epsilon is ${localEpsilon.toFixed(4)}, above the limit of ${most}.`,
  );
  return [{ ...plan, localEpsilon }, digest, q1, q2, blocks, bits];
};
