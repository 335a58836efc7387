/**
 * Questions that are choices or flags for everything but where their answer comes from: dates, arms,
 * retention and funnels.
 */

/** @typedef {import("./survey.js").Question} Question */

const DAY = 864e5;

/** What is no date names no option. */
const NO_DATE = {};

/**
 * The labels of a date, by the part of it that is counted.
 *
 * @type {Record<string, string[]>}
 */
const PERIODS = {
  month:
    "January February March April May June July August September October November December".split(" "),
  weekday: "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(" "),
  week: Array.from({ length: 53 }, (_, place) => `week ${place + 1}`),
};

/** @type {(by: string, day: Date) => number} */
const placeOf = (by, day) => {
  if (by == "month") return day.getUTCMonth();
  const weekday = (day.getUTCDay() + 6) % 7;
  if (by == "weekday") return weekday;
  // The week of ISO 8601 is that of its Thursday.
  const thursday = new Date(+day + (3 - weekday) * DAY);
  return Math.floor((+thursday - Date.UTC(thursday.getUTCFullYear(), 0)) / DAY / 7);
};

/**
 * Reads a date, or ISO text such as 2026-03-31, also with a time, as the label of its part.
 *
 * @type {(by: string) => (answer: any) => any}
 */
const reader = (by) => (answer) => {
  if (answer == null || (typeof answer == "string" && !answer.trim())) return answer;
  const text = answer instanceof Date ? answer.toLocaleDateString("sv") : answer; // as 2026-03-31
  const [, date] = (typeof text == "string" && /^\s*(\d{4}-\d\d-\d\d)([T ]|\s*$)/.exec(text)) || [];
  const day = new Date(`${date}T00:00Z`);
  // 30 February would be a day in March.
  return date && !isNaN(+day) && day.toISOString().startsWith(date) ? PERIODS[by][placeOf(by, day)] : NO_DATE;
};

const numbers = (/** @type {number} */ first, /** @type {number} */ last) =>
  Array.from({ length: last - first + 1 }, (_, place) => `${first + place}`);

/**
 * How each kind is made of others; `past` says what a device answers from its own past. Add them to
 * the client with `Object.assign(kinds, moreKinds)`.
 *
 * @type {Record<string, (question: any) => Question>}
 */
export const moreKinds = {
  date: (question) => ({ ...question, options: PERIODS[question.by], read: reader(question.by) }),
  arm: ({ arms, ...rest }) => ({ ...rest, kind: "choice", options: arms, past: "arm" }),
  funnel: ({ steps, ...rest }) => ({ ...rest, kind: "choice", options: steps, past: "funnel" }),
  retention: (question) =>
    question.design == "once"
      ? { ...question, kind: "flags", options: numbers(1, question.periods), past: "once" }
      : { ...question, kind: "choice", options: numbers(0, question.periods), past: "age" },
};
