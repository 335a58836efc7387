/** Which bits an answer sets. Whatever is outside its question's domain is an error. */

import { canonical, isText, join, little, min, MOST, must, Octets, sha256 } from "./bytes.js";
import { draw } from "./random.js";

/** @typedef {import("./survey.js").Block} Block */
/** @typedef {import("./survey.js").Question} Question */
/** @typedef {import("./bytes.js").Bytes} Bytes */

// Unicode's White_Space, and U+001C to U+001F. `\s` has U+FEFF too, and lacks U+0085.
const SPACE = "[\\p{space}\x1c-\x1f]+";

/**
 * A text in its normal form, without white space at its ends.
 *
 * @param {string} text
 */
export const strip = (text) => text.normalize().replace(RegExp(SPACE + "$|^" + SPACE, "gu"), "");

/**
 * A text without its case, and with one blank for every run of white space.
 *
 * @param {string} text
 */
export const folded = (text) =>
  strip(text).replace(RegExp(SPACE, "gu"), " ").toUpperCase().toLowerCase().normalize();

/** The place of what is outside the domain. */
const NOWHERE = -1;

/** Every other word is yes. */
const YES_NO = ["yes", "no", "true", "false", "1", "0"];

/**
 * The packed bits of one person's answer.
 *
 * @param {import("./survey.js").Survey} survey
 * @param {[Map<string, Block>, bits: number, ...rest: unknown[]]} layout of the survey
 * @param {Record<string, any>} answers by question; crossed questions follow from the others
 * @param {number} cohort 0 where there is none
 * @param {(start: number) => Bytes | Promise<Bytes>} [rounding] eight bytes that round a number
 */
export const encode = async (survey, [blocks, bits], answers, cohort, rounding = () => draw(8)) => {
  for (const name in answers)
    must(
      blocks.has(name) && !(/** @type {Block} */ (blocks.get(name))[3]),
      `there is no question ${name}.`,
    );
  /** @type {Record<string, any>} the answers, and in the place of each the places it sets */
  const given = { __proto__: null, ...answers };
  const row = new Octets((bits + 7) >> 3);
  for (const [name, [question, start, bits, sides]] of blocks) {
    /** @type {number[]} */
    const places = sides
      ? [
          sides.reduce(
            (cell, [of, values, flag]) =>
              cell * values + (flag == null ? given[of][0] : +!given[of].includes(flag)),
            0,
          ),
        ]
      : question.hashes
        ? await textPlaces(survey, question, given[name], cohort)
        : optionPlaces(question, question.read?.(given[name]) ?? given[name], bits);
    // A number between two points of its grid is rounded at random, so that its mean is kept.
    if (places[0] % 1 > 0) {
      const [word] = new Uint32Array((await rounding(start)).buffer);
      places[0] = Math.floor(places[0] + 1 - word / 2 ** 32);
    }
    must(
      places.every((place, at) => place >= 0 && places.indexOf(place) == at) &&
        places.length <= (question.at_most ?? bits),
      `question ${name}: ${canonical(given[name])} is not ${question.kind}.`,
    );
    given[name] = places;
    for (const place of places)
      // Where yes is one bit, no sets none.
      if (place < bits) row[(start + place) >> 3] |= 1 << ((start + place) & 7);
  }
  return row;
};

/**
 * @param {Question} question
 * @param {any} answer
 * @param {number} bits
 */
const optionPlaces = (question, answer, bits) => {
  const { options, edges, points, low, high } = /** @type {any} */ (question);
  // Codes that are whole numbers are named by their digits, and where there are no options, numbers
  // and truth values by what they are.
  const nameOf = (/** @type {any} */ given) =>
    (isText(given) || (options ? Number.isSafeInteger(given) : Object(given) !== given)) &&
    ((question.fold ?? !options) ? folded : strip)(`${given}`);
  const known = (options ?? YES_NO).map(nameOf);
  const placeOf = (/** @type {any} */ given) => {
    /** @type {any} */
    const name = nameOf(given);
    const place = known.indexOf(name);
    return given == null || name === ""
      ? question.missing
        ? bits - 1
        : NOWHERE
      : edges || points
        ? /^[-+.\de]+$/.test(name) && isFinite(name)
          ? edges
            ? edges.filter((/** @type {string} */ edge) => +edge <= name).length
            : min(Math.max((name - low) * ((points - 1) / (high - low)), 0), points - 1)
          : NOWHERE
        : !options
          ? place % 2
          : place < 0 && question.other && name
            ? known.length
            : place;
  };
  // Leaving out a question with many answers is not the same as answering that nothing is set.
  const named = !/s$/.test(question.kind)
    ? [answer]
    : answer === null || nameOf(answer) === ""
      ? []
      : isText(answer)
        ? answer.split(";")
        : [answer].flat();
  // Several others are one.
  return named.map(placeOf).filter((place, at, all) => place != known.length || all.indexOf(place) == at);
};

/**
 * The bits that a text sets in a cohort; no answer counts as an empty text.
 *
 * @param {import("./survey.js").Survey} survey
 * @param {Question} question
 * @param {any} answer
 * @param {number} cohort
 */
const textPlaces = async (survey, question, answer, cohort) => {
  const { bits, hashes, pairs } = /** @type {Required<Question>} */ (question);
  const text = answer === null ? "" : answer;
  if (!isText(text) || [...text].length > MOST) return [NOWHERE];
  const word = strip(text);
  const label = join(question.name.normalize());
  const digest = await sha256(
    "shoal-text-1\0",
    await sha256(canonical(survey)),
    little(label.length, 2),
    label,
    little(cohort, 2),
    word,
  );
  /** @type {number[]} */
  const places = [];
  // Each hash takes one of the bits that are free. An empty text is no answer: it sets none.
  const free = [...Array(bits).keys()];
  for (const drawn of new Uint32Array(digest.buffer, 0, word ? hashes : 0))
    places.push(...free.splice((drawn * free.length) / 2 ** 32, 1));
  if (pairs) {
    // One pair of the word's letters; which one follows from the cohort.
    const letters = [...pairs.alphabet];
    const padding = letters.length;
    const spelled = [...word].map((letter) => letters.indexOf(letter));
    const [first = padding, second = padding] = spelled.slice(cohort % (pairs.length - 1));
    const isOther = !word || spelled.length > pairs.length || spelled.includes(NOWHERE);
    // The last two places are those of padding alone, and of other words.
    const last = padding * padding + padding;
    places.push(bits + (isOther ? last + 1 : min(first * (padding + 1) + second, last)));
  }
  return places;
};
