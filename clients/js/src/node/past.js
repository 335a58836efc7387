/**
 * Questions about a device's own past: its arm, its age in periods, the furthest step of a funnel.
 *
 * Windows are counted from a person's yes. With ages, a window's report is made in that window, since
 * people who leave never report later. Otherwise one report is made, about the first two windows, or
 * all P + 1 of a retention question, when they are over.
 *
 * Before a report is made, a file with its number is, under the name of the survey; it says for which
 * plan and window. So neither a kill, nor a clock that is set, nor an upgrade of the tool makes a second
 * one. A kill between the two files, and no further run in the same window, loses the report.
 */

import { join } from "node:path";

import { below } from "../random.js";
import { crc32 } from "./crc32.js";
import { createFile, readText, windowsOf } from "./files.js";

/** Windows that a single report is about: at least one whole window after a person's yes. */
const FIRST = 2;

/** @typedef {import("../survey.js").Block} Block */

/**
 * Whether a survey is about the past, and about ages; how many windows there are until the last
 * report; and how many reports a device makes in all: Infinity without an end.
 *
 * @param {Map<string, Block>} blocks
 */
export const pastOf = (blocks) => {
  /** @type {any[]} */
  const asked = [...blocks.values()].map(([question]) => question).filter(({ past }) => past);
  const retention = asked.find(({ periods }) => periods);
  const ages = retention?.past == "age";
  const windows = retention ? retention.periods + 1 : asked.length ? FIRST : 1;
  const most = ages ? (retention.missing ? Infinity : windows) : asked.length ? 1 : Infinity;
  return { about: asked.length > 0, asked, ages, windows, most };
};

/** @type {(kind: string, ...of: any[]) => string} */
const nameOf = (kind, ...of) =>
  `${kind}.${crc32(Buffer.from(JSON.stringify(of))).toString(16).padStart(8, "0")}`;

/** Store a file for good unless there is one; what it holds from then on. @type {(home: string, name: string, content: string) => string} */
const keepFirst = (home, name, content) => {
  if (readText(join(home, name)) === undefined) createFile(home, name, content);
  return readText(join(home, name)) ?? content;
};

/** Keep when a device began to answer. @type {(home: string, survey: string, now: number) => void} */
export const begin = (home, survey, now) => {
  keepFirst(home, nameOf("began", survey), `${now}`);
};

const armName = (/** @type {any} */ { name, options }) => nameOf("arm", name, options);

/** The arm of this device, drawn the first time. @type {(home: string, question: any) => string} */
export const keptArm = (home, question) => {
  const known = readText(join(home, armName(question)));
  if (known !== undefined) return known;
  /** @type {number[]} */
  const weights = question.weights ?? question.options.map(() => 1);
  let drawn = below(weights.reduce((sum, weight) => sum + weight, 0));
  const place = weights.findIndex((weight) => (drawn -= weight) < 0);
  return keepFirst(home, armName(question), question.options[place]);
};

/**
 * What is due at a time: the number of the report, the first and last window that it is about, and
 * whether no later window can have one. Undefined if the device has not begun.
 *
 * @type {(home: string, survey: string, blocks: Map<string, Block>, length: number, now: number) =>
 *   {number?: number, began: number, last: number, window: number, isOver: boolean} | undefined}
 */
export const dueAt = (home, survey, blocks, length, now) => {
  const start = readText(join(home, nameOf("began", survey)));
  if (start === undefined) return;
  const { ages, windows, most } = pastOf(blocks);
  const [began, window] = [+start, now].map((time) => Math.floor(time / length));
  const end = began + windows - 1;
  const age = window - began;
  const isDue = ages ? age >= 0 && age < most : window > end;
  return {
    number: isDue ? (ages ? age : 0) : undefined,
    began,
    last: ages ? window : end,
    window,
    isOver: ages ? age + 1 >= most : window > end,
  };
};

/**
 * Store that a report is being made; false if it was made in another window or for another plan, or if
 * a later one was made.
 *
 * @type {(home: string, survey: string, number: number, plan: string, window: number) => boolean}
 */
export const claim = (home, survey, number, plan, window) => {
  const name = nameOf("made", survey);
  if (windowsOf(home, `${name}.`).some((made) => made > number)) return false;
  return keepFirst(home, `${name}.${number}`, `${plan} ${window}`) == `${plan} ${window}`;
};

/**
 * The answers that are not recorded: arms and ages, null where there is none.
 *
 * @type {(home: string, blocks: Map<string, Block>, windows: number[], began: number, window: number) => Record<string, any>}
 */
export const keptAnswers = (home, blocks, windows, began, window) => {
  /** @type {Record<string, any>} */
  const kept = {};
  for (const question of pastOf(blocks).asked) {
    const { past, name, periods } = question;
    if (past == "arm") kept[name] = readText(join(home, armName(question))) ?? null;
    if (past == "age") kept[name] = window - began <= periods ? `${window - began}` : null;
    if (past == "once") kept[name] = windows.filter((one) => one > began).map((one) => `${one - began}`);
  }
  return kept;
};
