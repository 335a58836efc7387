/** What a person reads before saying yes; all numbers follow from the plan. */

import { createInterface } from "node:readline";

import { switchName } from "./environment.js";

const PATIENCE = 6e4;

/** @type {[number, string, string][]} */
const SPANS = [[604_800, "a week", "weeks"], [86_400, "a day", "days"], [3600, "an hour", "hours"]];

/** @param {number} window */
const often = (window) => {
  for (const [seconds, one, many] of SPANS) {
    if (window == seconds) return one;
    if (window % seconds == 0) return `every ${window / seconds} ${many}`;
  }
  return `every ${window} seconds`;
};

/** @param {import("../survey.js").Question} question */
const answersOf = ({ kind, options, low, high, edges }) =>
  options
    ? `${kind == "flags" ? "any" : "one"} of ${options.join(", ")}`
    : low !== undefined
      ? `a number from ${low} to ${high}`
      : edges
        ? `a number, between ${edges.join(", ")}`
        : kind == "text"
          ? "a text, of which only scrambled bits are sent"
          : kind;

/**
 * The questions, the flips, and what a report reveals, one line each.
 *
 * @param {any} options
 * @param {import("./worker.js").ReadPlan} read
 */
export const details = ({ tool, to, limit }, [plan, , , [numerator, digits], , bits]) => [
  "Asked:",
  ...plan.survey.questions
    .filter(({ kind }) => kind != "cross")
    .map((question) => `  ${question.name}: ${answersOf(question)}`),
  `Sent: one report ${often(/** @type {number} */ (plan.window))}, about the last one before in which you used it. Each of` +
    ` its ${bits} bits is flipped with probability ${(numerator / 2 ** digits).toPrecision(4)} before it leaves this` +
    " machine. It has no id that a second report would share.",
  `${plan.memory ? "Any number of reports of the same answers reveal" : "One report reveals"} at most a local epsilon of` +
    ` ${(plan.localEpsilon + 5e-5).toFixed(4)} to whoever sees it.`,
  ...(limit && !plan.memory ? [`No report is made once all of them would reveal more than ${limit}.`] : []),
  `To: ${to}. Its operator sees the network address of each sender.`,
  `See every byte that left with \`${tool} telemetry show\`. Turn it off with \`${tool} telemetry off\`, ${switchName(tool)}=0` +
    " or DO_NOT_TRACK=1.",
];

/**
 * Break lines between words.
 *
 * @param {string} text
 * @param {number} columns
 */
export const wrapped = (text, columns) =>
  text
    .split("\n")
    .map((line) => {
      const indent = /^ */.exec(line)?.[0] ?? "";
      let made = indent;
      let column = indent.length;
      line.trimStart().split(" ").forEach((word, place) => {
        if (place && column + 1 + word.length > columns) (made += "\n" + indent), (column = indent.length);
        else if (place) (made += " "), column++;
        made += word;
        column += word.length;
      });
      return made;
    })
    .join("\n");

const PROMPT = "Send these reports? [y/N/?] ";

/**
 * Show the question; anything but yes is no, "?" shows the details, and no answer in a minute is no.
 *
 * @param {any} options
 * @param {import("./worker.js").ReadPlan} read
 * @param {boolean} changed
 */
export const ask = async (options, read, changed) => {
  const { tool, why } = options;
  const columns = process.stderr.columns || 80;
  const first = changed
    ? `${tool} asks different questions than those you said yes to. May it report them?`
    : `May ${tool} report how it is used?`;
  const rest =
    `It would send one report ${often(/** @type {number} */ (read[0].window))} without an id, in which some answers are` +
    ` changed at random before it leaves this machine. Nothing was sent so far; \`${tool} telemetry off\` stops it at any` +
    " time.";
  const lines = createInterface({ input: process.stdin });
  process.stderr.write("\n" + wrapped([first, why, rest].filter(Boolean).join(" ") + "\n" + PROMPT, columns));
  const answer = await new Promise((resolve) => {
    const timer = setTimeout(() => resolve(""), PATIENCE);
    lines.on("close", () => resolve(""));
    lines.on("line", (line) => {
      if (line.trim() == "?") process.stderr.write(wrapped(details(options, read).join("\n") + "\n" + PROMPT, columns));
      else clearTimeout(timer), resolve(line);
    });
  });
  lines.close();
  process.stdin.unref?.();
  const isYes = /^(y|yes)$/i.test(answer.trim());
  process.stderr.write(isYes ? "Thank you.\n" : "\nNothing will be sent, and you will not be asked again.\n");
  return isYes;
};
