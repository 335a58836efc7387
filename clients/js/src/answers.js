/** Which bits an answer sets. Whatever is outside its question's domain is an error. */

import { canonical, join, little, must, Octets, sha256, utf8 } from "./bytes.js";

/** @typedef {import("./survey.js").Question} Question */

// Unicode's White_Space, and U+001C to U+001F. `\s` has U+FEFF too, and lacks U+0085.
const SPACE = "(?:(?!\\ufeff)[\\s\\x1c-\\x1f\\x85])+";
const ENDS = RegExp(`^${SPACE}|${SPACE}$`, "g");

/** @param {string} text */
export const strip = (text) => text.replace(ENDS, "");

/**
 * A text without its case, and with one blank for every run of white space.
 *
 * @param {string} text
 */
export const folded = (text) =>
  strip(text).split(RegExp(SPACE)).join(" ").normalize().toUpperCase().toLowerCase().normalize();

/**
 * The packed bits of one person's answer.
 *
 * @param {import("./survey.js").Survey} survey
 * @param {ReturnType<typeof import("./survey.js").layout>} layout
 * @param {Record<string, any>} answers by question; crossed questions follow from the others
 * @param {number | null} cohort
 */
export async function encode(survey, [blocks, bits], answers, cohort) {
  for (const name in answers)
    must(blocks.has(name) && !blocks.get(name)?.[3], `there is no question ${name}.`);
  /** @type {Record<string, any>} */
  const given = { __proto__: null, ...answers };
  /** @type {Map<string, number[]>} */
  const chosen = new Map();
  const row = new Octets(Math.ceil(bits / 8));
  for (const [name, [question, start, bits, sides]] of blocks) {
    const places = sides
      ? [
          sides.reduce((cell, [of, values, bit]) => {
            const set = /** @type {number[]} */ (chosen.get(of));
            return cell * values + (bit == null ? set[0] : set.includes(bit) ? 0 : 1);
          }, 0),
        ]
      : question.hashes
        ? await textPlaces(survey, question, given[name], cohort ?? 0)
        : optionPlaces(question, given[name], bits);
    must(places, `question ${name}: ${JSON.stringify(given[name])} is not ${question.kind}.`);
    chosen.set(name, places);
    for (const place of places) row[(start + place) >> 3] |= 1 << ((start + place) & 7);
  }
  return row;
}

/**
 * @param {Question} question
 * @param {any} answer
 * @param {number} bits
 * @returns {number[] | undefined} nothing if the answer is outside the domain
 */
function optionPlaces({ kind, options = [], edges, fold, other, missing, at_most }, answer, bits) {
  // Codes that are whole numbers are named by their digits.
  const nameOf = (/** @type {any} */ option) =>
    Number.isSafeInteger(option) ? `${option}` : typeof option == "string" ? option : undefined;
  const compared = (/** @type {string} */ text) => (fold ? folded(text) : strip(text).normalize());
  const placeOf = (/** @type {any} */ option) => {
    const name = nameOf(option);
    if (name == null) return -1;
    const place = options.findIndex((one) => compared(one) == compared(name));
    return place < 0 && other ? options.length : place;
  };
  const name = nameOf(answer);
  const text = strip(name ?? "");
  const isMissing = answer == null || (name != null && !text);
  if (/s$/.test(kind)) {
    // Leaving out a question is not the same as answering that nothing is set.
    const named = isMissing ? [] : typeof answer == "string" ? answer.split(";") : answer;
    if (answer === undefined || !Array.isArray(named)) return;
    /** @type {Set<number>} */
    const places = new Set(named.map(placeOf));
    const fits = places.size == named.length && places.size <= (at_most ?? bits);
    return fits && !places.has(-1) ? [...places] : undefined;
  }
  if (isMissing) return missing ? [bits - 1] : undefined;
  if (edges) {
    const number = typeof answer == "number" ? answer : /^[-+.\de]+$/i.test(text) ? +text : NaN;
    return isFinite(number) ? [edges.filter((edge) => +edge <= number).length] : undefined;
  }
  if (options[0] != null) {
    const place = placeOf(answer);
    return place < 0 ? undefined : [place];
  }
  const word = folded(typeof answer == "boolean" ? `${answer}` : text);
  const place = ["yes", "true", "1", "no", "false", "0"].indexOf(word);
  return place < 0 ? undefined : place < 3 ? [0] : bits > 1 ? [1] : [];
}

/**
 * The bits that a text sets in a cohort; no answer counts as an empty text.
 *
 * @param {import("./survey.js").Survey} survey
 * @param {Question} question
 * @param {any} answer
 * @param {number} cohort
 */
async function textPlaces(survey, { name, bits = 0, hashes = 0, pairs }, answer, cohort) {
  const text = answer === null ? "" : answer;
  if (typeof text != "string" || [...text].length > 65536) return;
  const word = strip(text.normalize());
  const label = utf8(name.normalize());
  const digest = await sha256(
    join(
      "shoal-text-1\0",
      await sha256(utf8(canonical(survey))),
      little(label.length, 2),
      label,
      little(cohort, 2),
      word,
    ),
  );
  /** @type {number[]} */
  const places = [];
  // An empty text is no answer: it sets no bit.
  for (let i = 0; word && i < hashes; i++) {
    const drawn = new Uint32Array(digest.buffer)[i];
    let place = Math.floor((drawn * (bits - i)) / 2 ** 32);
    // Step over the bits that are taken.
    for (const earlier of [...places].sort((a, b) => a - b)) if (place >= earlier) place++;
    places.push(place);
  }
  if (pairs) {
    // One pair of the word's letters; which one follows from the cohort.
    const letters = [...pairs.alphabet];
    const count = letters.length;
    const spelled = [...word];
    const isOther =
      !word || spelled.length > pairs.length || spelled.some((letter) => !letters.includes(letter));
    const [first, second] = spelled
      .map((letter) => letters.indexOf(letter))
      .slice(cohort % (pairs.length - 1));
    const padding = count * (count + 1);
    places.push(
      bits + (isOther ? padding + 1 : first == null ? padding : first * (count + 1) + (second ?? count)),
    );
  }
  return places;
}
