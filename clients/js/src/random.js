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

import { join, MOST, Octets } from "./bytes.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

/**
 * So many random bytes of the system; there is no other source.
 *
 * @type {(size: number) => Bytes}
 */
export const draw = (size) =>
  size > MOST
    ? join(draw(MOST), draw(size - MOST))
    : crypto.getRandomValues(new Octets(size));

/**
 * A number uniform on 0 .. bound - 1, exactly; what does not divide is drawn again.
 *
 * @param {number} bound
 * @returns {number}
 */
export const below = (bound) => {
  const among = BigInt(bound);
  const [word] = new BigUint64Array(draw(8).buffer);
  const drawn = word % among;
  return word - drawn + among > 2n ** 64n ? below(bound) : Number(drawn);
};

/**
 * How many fair bytes the flips of one vector take.
 *
 * @param {number} bits
 * @param {number[]} q
 */
export const fairBytes = (bits, [, digits]) => digits * ((bits + 63) >> 6) * 8;

/**
 * The vector with each bit flipped with probability exactly q = numerator / 2^digits.
 *
 * @param {Bytes} vector
 * @param {number} bits
 * @param {number[]} q
 * @param {Uint8Array} [fair] random bytes, as many as `fairBytes` says
 */
export const randomize = (vector, bits, q, fair = draw(fairBytes(bits, q))) => {
  const [numerator, digits] = q;
  const flipped = vector.map((byte, place) => {
    let flips = 0;
    for (let digit = 0; digit < digits; digit++) {
      const drawn = fair[(digit * fair.length) / digits + place];
      flips = (numerator / 2 ** digit) & 1 ? flips | drawn : flips & drawn;
    }
    return byte ^ flips;
  });
  flipped[(bits - 1) >> 3] &= 255 >> (-bits & 7);
  return flipped;
};
