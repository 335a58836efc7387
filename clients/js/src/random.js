/**
 * Random bits, and flips with probability exactly q.
 *
 * With q = 0.d1 d2 ... dk in binary and fair bits r1 ... rk, from the least significant digit on:
 *
 *     x = 0;   for j = k, ..., 1:   x = (x | rj) if dj is 1 else (x & rj)
 *
 * which is [U < q] for a uniform U, on all bits of a vector at once. How many random bits are drawn
 * depends on the plan alone, and they are drawn before the original is touched.
 */

import { Octets } from "./bytes.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {(size: number) => Bytes} Draw */

/**
 * So many random bytes of the system; there is no other source.
 *
 * @type {Draw}
 */
export function draw(size) {
  const bytes = new Octets(size);
  // One call gives at most 65536 bytes.
  for (let at = 0; at < size; at += 65536) crypto.getRandomValues(bytes.subarray(at, at + 65536));
  return bytes;
}

/**
 * A number uniform on 0 .. bound - 1, exactly; what does not divide is drawn again.
 *
 * @param {number} bound
 * @param {Draw} [source]
 */
export function below(bound, source = draw) {
  const values = 2n ** 64n;
  const among = BigInt(bound);
  for (;;) {
    const [word] = new BigUint64Array(source(8).buffer);
    if (word < values - (values % among)) return Number(word % among);
  }
}

/**
 * How many fair bytes the flips of one vector take.
 *
 * @param {number} bits
 * @param {number[]} q
 */
export const fairBytes = (bits, [, digits]) => digits * Math.ceil(bits / 64) * 8;

/**
 * The vector with each bit flipped with probability exactly q = numerator / 2^digits.
 *
 * @param {Bytes} vector
 * @param {number} bits
 * @param {number[]} q
 * @param {Uint8Array} [fair] random bytes, as many as `fairBytes` says
 */
export function randomize(vector, bits, q, fair = draw(fairBytes(bits, q))) {
  const [numerator, digits] = q;
  const flips = vector.map((_, place) => {
    let flip = 0;
    for (let digit = 0; digit < digits; digit++) {
      const bit = fair[(digit * fair.length) / digits + place];
      flip = Math.floor(numerator / 2 ** digit) % 2 ? flip | bit : flip & bit;
    }
    return flip;
  });
  flips[flips.length - 1] &= 255 >> (-bits & 7);
  return flips.map((flip, place) => flip ^ vector[place]);
}
