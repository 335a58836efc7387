/** Where the bits of each question stand, and in how many of them two answers can differ. */

import { min, must } from "./bytes.js";

/**
 * @typedef {{kind: string, name: string, options?: string[], edges?: string[], low?: string, high?: string,
 *   points?: number, column?: string, fold?: boolean, title?: string, text?: string,
 *   titles?: Record<string, string>, unit?: string,
 *   other?: boolean, missing?: string, at_most?: number, bits?: number, hashes?: number,
 *   read?: (answer: any) => any, past?: string, weights?: number[],
 *   cohorts?: number, pairs?: {alphabet: string, length: number}, questions?: string[]}} Question
 * @typedef {{name: string, title?: string, text?: string, questions: Question[]}} Survey
 */

/**
 * A side of a cross: the question, how many values it has, and, of a question with many answers at
 * once, the flag that tells between two of them.
 *
 * @typedef {[name: string, values: number, flag?: number | null]} Side
 */

/** @typedef {[question: Question, start: number, bits: number, sides?: Side[]]} Block */

/**
 * Kinds of questions that are made of others, by name: `kinds.js` has dates, arms, retention and funnels.
 *
 * @type {Record<string, (question: any) => Question>}
 */
export const kinds = {};

/**
 * The blocks of a survey, by their questions' names; all bits; in how many of them two answers can
 * differ; and the cohorts of text. Kinds of questions that are not known here are refused.
 *
 * @param {Survey} survey
 * @returns {[Map<string, Block>, number, number, number | null]}
 */
export const layout = ({ questions }) => {
  /** @type {Map<string, Block>} */
  const blocks = new Map();
  let start = 0;
  let differing = 0;
  /** @type {number | null} */
  let cohorts = null;
  for (const asked of questions) {
    const question = kinds[asked.kind]?.(asked) ?? asked;
    const { kind, edges, missing, pairs } = question;
    /** @type {Side[] | undefined} */
    const sides = question.questions?.map((side) => {
      // The question of this name, or else the one before the first "=", and its option behind that.
      const [of, option] = blocks.has(side) ? [side] : side.split(/=(.*)/s);
      const [asked, , bits] = /** @type {Block} */ (blocks.get(of));
      const flag = /** @type {number | undefined} */ (option && asked.options?.indexOf(option));
      return [of, flag == null && bits > 1 ? bits : 2, flag];
    });
    const listed = question.options ?? (edges && [...edges, kind]);
    const options = question.points ?? listed?.length;
    const size = options
      ? options + /** @type {any} */ (!!question.other) + /** @type {any} */ (!!missing)
      : sides
        ? sides.reduce((cells, [, values]) => cells * values, 1)
        : kind == "yes/no"
          ? missing
            ? 3
            : 1
          : /** @type {number} */ (question.bits);
    must(size > 0 && size % 1 == 0, `kind ${kind} is not known here.`);
    const most = question.at_most ?? question.hashes ?? (kind == "flags" ? size : 1);
    const letters = pairs && [...pairs.alphabet].length;
    const bits = size + (letters ? letters * (letters + 1) + 2 : 0);
    blocks.set(question.name, [question, start, bits, sides]);
    start += bits;
    differing += min(2 * most, size) + (pairs ? 2 : 0);
    cohorts = question.cohorts ?? cohorts;
  }
  return [blocks, start, differing, cohorts];
};

/**
 * Everything in a plan that decides which bits an answer sets and its permanent flips; and the words
 * of its survey: the names of questions and options, and the titles that people read instead.
 *
 * @param {import("./plan.js").Plan} plan
 * @param {Map<string, Block>} blocks
 * @returns {[rules: object, words: string[][]]}
 */
export const encoding = ({ survey, memory }, blocks) => {
  const names = [...blocks.keys()];
  const asked = [...blocks.values()];
  return [
    [
      survey.name,
      memory?.q1,
      asked.map(
        ([{ name, title, text, titles, options, column, questions, ...rules }, , bits, sides]) => [
          rules,
          rules.other ? options : bits, // an answer that is no longer listed sets another bit
          sides?.map(([of, ...side]) => [names.indexOf(of), ...side]),
        ],
      ),
    ],
    // Who answers by titles or texts chooses another bit if two of them are swapped.
    [0, 1].map((shown) =>
      asked.flatMap(([{ name, title = name, text = title, options = ["yes", "no"], titles }]) => [
        ...(shown ? [title, text] : [name]),
        ...options.map((option) => (shown && titles?.[option]) || option),
      ]),
    ),
  ];
};

/**
 * Whether a word has moved to another place: the same answer then sets another bit.
 *
 * @param {string[][]} old
 * @param {string[][]} words
 */
export const isMoved = (old, words) =>
  words.some((list, kind) => {
    const come = new Set(list.filter((word, place) => word != old[kind][place]));
    return old[kind].some((word, place) => word != list[place] && come.has(word));
  });
