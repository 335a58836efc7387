/** What a person reads before saying yes, in their language; all numbers follow from the plan. */

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

import { switchName } from "./environment.js";
import { pastOf } from "./past.js";

/** @typedef {Record<string, any>} Words the texts of one language, by key */

/** The texts of all Shoal clients. @type {Record<string, Words>} */
export const catalogue = JSON.parse(readFileSync(new URL("./catalogue.json", import.meta.url), "utf8"));

const PATIENCE = 6e4;

/**
 * The texts in the language of messages, by the variables of POSIX; English otherwise.
 *
 * @param {import("./files.js").Environ} environ
 */
export const wordsFor = ({ LC_ALL, LC_MESSAGES, LANG }) => {
  const locale = LC_ALL || LC_MESSAGES || LANG || "";
  const language = locale.split(/[_.@-]/)[0].toLowerCase();
  return (/utf-?8/i.test(locale) && Object.hasOwn(catalogue, language) && catalogue[language]) || catalogue.en;
};

/** @type {(text: string, fields?: Record<string, any>) => string} */
const fill = (text, fields = {}) => text.replace(/\{(\w+)\}/g, (_, name) => fields[name]);

/** @type {(read: import("./worker.js").ReadPlan, words: Words) => string} */
const often = ([plan, , , , blocks], words) => {
  const { most: count } = pastOf(blocks);
  const regular = regularly(/** @type {number} */ (plan.window), words);
  return count == 1 ? words.once : count < Infinity ? fill(words.ages, { often: regular, count }) : regular;
};

/** @type {(window: number, words: Words) => string} */
const regularly = (window, { often }) => {
  for (const [seconds, name] of /** @type {[number, string][]} */ ([[604_800, "week"], [86_400, "day"], [3600, "hour"]])) {
    if (window == seconds) return often[name];
    if (window % seconds == 0) return fill(often[name + "s"], { count: window / seconds });
  }
  return fill(often.seconds, { count: window });
};

/** @param {any} question @param {Words} words */
const inWords = ({ kind, past, options, low, high, edges, other, missing, at_most: count, bits }, words) => {
  const labels = [
    ...(options ?? []),
    ...(edges ?? []).map((/** @type {string} */ edge, /** @type {number} */ place) =>
      fill(place ? words.between : words.below, place ? [edges[place - 1], edge] : [edge]),
    ),
    ...(edges ? [fill(words.above, [edges.at(-1)])] : []),
    ...(low === undefined ? [] : [`${low} – ${high}`]),
    ...(other ? [words.other] : []),
    ...(missing ? [words.missing] : []),
  ];
  /** @type {Record<string, string>} */
  const keys = {
    flags: "flags", number: "number", text: "text", "yes/no": "yes or no",
    arm: "variant", age: "age", once: "periods", funnel: "step",
  };
  return fill(words[count ? "at most" : (keys[past ?? kind] ?? "one")], { labels: labels.join(words.separator), count, bits });
};

/**
 * How often a bit of a report differs from that of the answer; with memory, after both layers of flips.
 *
 * @param {import("./worker.js").ReadPlan} read
 */
const probability = ([plan, , [n1, d1], [n2, d2]]) => {
  const [first, second] = [n1 / 2 ** d1, n2 / 2 ** d2];
  return +(plan.memory ? first * (1 - second) + second * (1 - first) : second).toPrecision(4);
};

/**
 * The questions, the flips, and what a report reveals, one line each.
 *
 * @param {any} options
 * @param {import("./worker.js").ReadPlan} read
 * @param {Words} words
 */
export const details = ({ tool, to, limit }, read, words) => {
  const [plan, , , , blocks, bits] = read;
  const window = /** @type {number} */ (plan.window);
  const about = { 604800: "week", 86400: "day", 3600: "hour" }[window] ?? "period";
  const epsilon = (plan.localEpsilon + 5e-5).toFixed(4);
  const factor =
    plan.localEpsilon > 30 ? fill(words.bare, { epsilon }) : (Math.exp(plan.localEpsilon) * 1.005).toPrecision(3); // rounded up
  return [
    words.asked,
    ...[...blocks.values()]
      .map(([question]) => question)
      .filter(({ kind }) => kind != "cross")
      .map((one) => "  " + fill(words.question, { name: one.name, text: inWords(one, words) })),
    fill(words.sent, { often: often(read, words), about: pastOf(blocks).about ? words.since : words.about[about], bits, q: probability(read) }),
    fill(words.odds, { factor, epsilon }),
    plan.memory ? fill(words.memory, { factor }) : words.several,
    ...(limit && !plan.memory ? [fill(words.limit, { limit })] : []),
    plan.parties ? fill(words.shares, plan.parties) : fill(words.to, { to }),
    fill(words.control, { tool, switch: switchName(tool) }),
  ];
};

/**
 * The question: three sentences, and the maintainer's reason.
 *
 * @param {any} options
 * @param {import("./worker.js").ReadPlan} read
 * @param {Words} words
 * @param {boolean} changed
 */
export const questionText = ({ tool, to, why }, read, words, changed) => {
  const [plan, , , , , bits] = read;
  const questions = plan.survey.questions.filter(({ kind }) => kind != "cross").map(({ name }) => name);
  return [
    fill(words[changed ? "asks again" : "asks"], {
      tool,
      often: often(read, words),
      host: new URL(to).host,
      questions: questions.join(words.separator),
    }),
    ...(why ? [why] : []),
    fill(words.how, { bits, q: probability(read) }),
    fill(words.choice, { tool }),
  ].join("\n");
};

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const NOT_FIRST = "、。，．：；？！）」』】〕〉》ー々・…ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ";
const NOT_LAST = "（「『【〔〈《";

/** How many columns of a terminal a text takes: East Asian letters take two. */
export const widthOf = (/** @type {string} */ text) => [...text].reduce((sum, letter) => sum + (WIDE.test(letter) ? 2 : 1), 0);

/** The parts of a line that are not broken; a blank is a part of its own. @param {string} line */
const pieces = (line) => {
  /** @type {string[]} */
  const found = [];
  let last = " ";
  for (const letter of line) {
    const isSplit = WIDE.test(letter) || WIDE.test(last);
    const mayBreak = isSplit && !NOT_FIRST.includes(letter) && !NOT_LAST.includes(last);
    if (letter == " " || last == " " || mayBreak) found.push(letter);
    else found[found.length - 1] += letter;
    last = letter;
  }
  return found;
};

/**
 * Break lines between words, and between East Asian letters, so that they fit.
 *
 * @param {string} text
 * @param {number} columns
 */
export const wrapped = (text, columns) =>
  text
    .split("\n")
    .map((line) => {
      const indent = /^ */.exec(line)?.[0] ?? "";
      let [made, column, space] = [indent, indent.length, ""];
      for (const piece of pieces(line.trim())) {
        if (piece == " ") {
          space = " ";
          continue;
        }
        const size = widthOf(piece);
        const isFull = column > indent.length && column + space.length + size > columns;
        made += (isFull ? "\n" + indent : space) + piece;
        column = (isFull ? indent.length : column + space.length) + size;
        space = "";
      }
      return made;
    })
    .join("\n");

/** @type {(answer: string, words: Words) => boolean} */
export const isYes = (answer, words) => words.yes.includes(answer.normalize("NFKC").trim().toLowerCase());

/**
 * Show the question; anything but a yes in its language is no, "?" shows the details, and no answer in
 * a minute is no.
 *
 * @param {any} options
 * @param {import("./worker.js").ReadPlan} read
 * @param {boolean} changed
 */
export const ask = async (options, read, changed) => {
  const words = wordsFor(options.environ);
  const columns = process.stderr.columns || 80;
  const show = (/** @type {string} */ text) => process.stderr.write(wrapped(text, columns) + "\n");
  const prompt = () => process.stderr.write(wrapped(words.prompt, columns - 8) + " ");
  const lines = createInterface({ input: process.stdin });
  show("\n" + questionText(options, read, words, changed));
  prompt();
  /** @type {string | undefined} */
  const answer = await new Promise((resolve) => {
    const timer = setTimeout(() => resolve(undefined), PATIENCE);
    lines.on("close", () => resolve(undefined));
    lines.on("line", (line) => {
      if (["?", "？"].includes(line.trim())) {
        show(details(options, read, words).join("\n"));
        prompt();
      } else {
        clearTimeout(timer);
        resolve(line);
      }
    });
  });
  lines.close();
  process.stdin.unref?.();
  if (answer === undefined) show("");
  const isAgreed = isYes(answer ?? "", words);
  show(isAgreed ? words.thanks : words.refused);
  return isAgreed;
};
