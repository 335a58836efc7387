/**
 * Prio3MultihotCountVec of draft-irtf-cfrg-vdaf-20, the client's part: bits become one share for
 * each aggregator and a proof that they are bits, of which no more are set than agreed.
 * `src/shoal/protocol/vdaf` explains the steps; both make the same bytes.
 *
 * The hash takes the same time whatever it hashes; BigInt takes a time that depends on the numbers.
 */

import { join, little, must, Octets } from "./bytes.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

const SEED = 32;
const RATE = 168;

// The constants of the last twelve rounds of Keccak-f[1600], as low and high words.
const ROUNDS = [
  0x8000808b, 0, 0x8b, 0x80000000, 0x8089, 0x80000000, 0x8003, 0x80000000, 0x8002, 0x80000000,
  0x80, 0x80000000, 0x800a, 0, 0x8000000a, 0x80000000, 0x80008081, 0x80000000, 0x8080, 0x80000000,
  0x80000001, 0, 0x80008008, 0x80000000,
];

// Where each lane but the first moves, in one walk: from (x, y) to (y, 2x + 3y).
const WALK = [2];
for (let x = 1, y = 0; WALK.length < 25; ) {
  [x, y] = [y, (2 * x + 3 * y) % 5];
  WALK.push(2 * (x + 5 * y));
}

/**
 * Keccak-p[1600, 12] of 25 lanes, each a low and a high word (FIPS 202, section 3).
 *
 * @param {Uint32Array} state
 */
const permute = (state) => {
  const old = new Uint32Array(50);
  const columns = new Uint32Array(10);
  for (let round = 0; round < 24; round += 2) {
    for (let x = 0; x < 10; x++)
      columns[x] = state[x] ^ state[x + 10] ^ state[x + 20] ^ state[x + 30] ^ state[x + 40];
    for (let x = 0; x < 10; x += 2) {
      const before = (x + 8) % 10;
      const after = (x + 2) % 10;
      const low = columns[before] ^ ((columns[after] << 1) | (columns[after + 1] >>> 31));
      const high = columns[before + 1] ^ ((columns[after + 1] << 1) | (columns[after] >>> 31));
      for (let y = 0; y < 50; y += 10) {
        state[x + y] ^= low;
        state[x + y + 1] ^= high;
      }
    }
    old.set(state.subarray(0, 2));
    // Along the walk, the lanes turn by 1, 3, 6, 10, ... bits.
    for (let step = 1, turn = 1, from = 2; step < 25; step++, turn += step) {
      const to = WALK[step];
      const swap = (turn >> 5) & 1;
      const low = state[from + swap];
      const high = state[from + 1 - swap];
      const by = turn & 31;
      from = to;
      // A shift by 32 would be one by 0.
      old[to] = (low << by) | ((high >>> 1) >>> (31 - by));
      old[to + 1] = (high << by) | ((low >>> 1) >>> (31 - by));
    }
    for (let y = 0; y < 50; y += 10)
      for (let x = 0; x < 10; x++)
        state[y + x] = old[y + x] ^ (~old[y + ((x + 2) % 10)] & old[y + ((x + 4) % 10)]);
    state[0] ^= ROUNDS[round];
    state[1] ^= ROUNDS[round + 1];
  }
};

/**
 * TurboSHAKE128 (RFC 9861) with domain separation byte 1.
 *
 * @param {Uint8Array} message
 * @param {number} length
 */
export const turboshake128 = (message, length) => {
  const padded = new Octets(RATE * Math.floor(message.length / RATE + 1));
  padded.set(message);
  padded[message.length] = 1;
  padded[padded.length - 1] ^= 0x80;
  const state = new Uint32Array(50);
  const words = new DataView(padded.buffer);
  for (let at = 0; at < padded.length; at += RATE) {
    for (let word = 0; word < RATE / 4; word++) state[word] ^= words.getUint32(at + 4 * word, true);
    permute(state);
  }
  const out = new DataView(new ArrayBuffer(length + 3));
  for (let at = 0; at < length; at += 4) {
    if (at && at % RATE == 0) permute(state);
    out.setUint32(at, state[(at % RATE) / 4], true);
  }
  return new Octets(out.buffer).slice(0, length);
};

const ELEMENT = 16;
export const MODULUS = 2n ** 128n - 7n * 2n ** 66n + 1n;

/** @type {(number: bigint) => bigint} */
const mod = (number) => ((number % MODULUS) + MODULUS) % MODULUS;

/** @type {(base: bigint, exponent: bigint) => bigint} */
const power = (base, exponent) =>
  exponent
    ? mod(power(mod(base * base), exponent >> 1n) * (exponent & 1n ? base : 1n))
    : 1n;

/**
 * The powers of the n-th root of unity.
 *
 * @param {number} n a power of two
 */
const rootsOfUnity = (n) => {
  const root = power(7n, (2n ** 62n - 7n) * (2n ** 66n / BigInt(n)));
  const roots = [1n];
  while (roots.length < n) roots.push(mod(roots[roots.length - 1] * root));
  return roots;
};

/**
 * The values of a polynomial at the roots of unity.
 *
 * @param {bigint[]} coefficients
 * @param {bigint[]} roots
 * @returns {bigint[]}
 */
const transform = (coefficients, roots) => {
  if (coefficients.length == 1) return coefficients;
  const half = (/** @type {number} */ odd) =>
    transform(
      coefficients.filter((_, place) => place % 2 == odd),
      roots.filter((_, place) => place % 2 == 0),
    );
  const even = half(0);
  const turned = half(1).map((value, place) => mod(value * roots[place]));
  return [
    ...even.map((value, place) => mod(value + turned[place])),
    ...even.map((value, place) => mod(value - turned[place])),
  ];
};

/** @type {(vector: bigint[]) => Bytes} */
const encoded = (vector) => {
  const view = new DataView(new ArrayBuffer(ELEMENT * vector.length));
  vector.forEach((element, place) => {
    view.setBigUint64(ELEMENT * place, element, true);
    view.setBigUint64(ELEMENT * place + 8, element >> 64n, true);
  });
  return new Octets(view.buffer);
};

/** @type {(left: bigint[], right: bigint[]) => bigint[]} */
const minus = (left, right) => left.map((element, place) => mod(element - right[place]));

/** @type {(seed: Uint8Array, tag: Uint8Array, binder: Uint8Array) => Bytes} */
const xofMessage = (seed, tag, binder) =>
  join(little(tag.length, 2), tag, Octets.of(seed.length), seed, binder);

/**
 * Elements of the stream of a seed; candidates that are not below the modulus are left out.
 *
 * @param {Uint8Array} seed
 * @param {Uint8Array} tag
 * @param {Uint8Array} binder
 * @param {number} length
 */
export const expand = (seed, tag, binder, length) => {
  for (let more = 0; ; more++) {
    const stream = turboshake128(xofMessage(seed, tag, binder), ELEMENT * (length + more));
    const view = new DataView(stream.buffer);
    const word = (/** @type {number} */ place) => view.getBigUint64(8 * place, true);
    const kept = Array.from(
      { length: length + more },
      (_, place) => word(2 * place) + (word(2 * place + 1) << 64n),
    ).filter((element) => element < MODULUS);
    if (kept.length >= length) return kept.slice(0, length);
  }
};

/** @type {(seed: Uint8Array, tag: Uint8Array, binder: Uint8Array) => Bytes} */
export const deriveSeed = (seed, tag, binder) => turboshake128(xofMessage(seed, tag, binder), SEED);

/**
 * The chunk length with the smallest proof for a number of range checks; among equals, the shortest.
 *
 * @param {number} length
 */
export const bestChunkLength = (length) => {
  let best = [Infinity, 0];
  for (let n = 2; n <= 4 * length; n *= 2) {
    const chunk = Math.ceil(length / (n - 1));
    const size = 2 * chunk + 2 * n;
    if (size < best[0] || (size == best[0] && chunk < best[1])) best = [size, chunk];
  }
  return best[1];
};

/**
 * The bits of a weight, of which the last counts what is left up to the largest weight.
 *
 * @param {number} weight
 * @param {number} largest
 */
const weightBits = (weight, largest) => {
  const powers = 31 - Math.clz32(largest);
  const ones = 2 ** powers - 1;
  const high = weight > ones ? 1 : 0;
  const rest = weight - high * (largest - ones);
  return [...Array.from({ length: powers }, (_, place) => (rest >> place) & 1), high];
};

/**
 * How many random bytes `shard` takes.
 *
 * @param {number} [shares]
 */
export const randSize = (shares = 2) => 2 * SEED * shares;

/**
 * The public share and the input share of each aggregator, the leader first.
 *
 * @param {Uint8Array} ctx the context of the task
 * @param {(number | boolean)[]} bits of which at most `maxWeight` are set
 * @param {number} maxWeight
 * @param {Uint8Array} nonce 16 random bytes
 * @param {Uint8Array} rand `randSize(shares)` random bytes
 * @param {number} [chunk]
 * @param {number} [shares]
 * @returns {[Bytes, Bytes[]]}
 */
export const shard = (ctx, bits, maxWeight, nonce, rand, chunk, shares = 2) => {
  const values = bits.map(Number);
  const weight = values.reduce((sum, bit) => sum + bit, 0);
  must(values.every((bit) => bit == 0 || bit == 1), "each element of a measurement is 0 or 1.");
  must(weight <= maxWeight, `a measurement has at most ${maxWeight} ones.`);
  const drawn = nonce.length == 16 && rand.length == randSize(shares);
  must(drawn, "the nonce or the randomness has a wrong length.");
  const measurement = [...values, ...weightBits(weight, maxWeight)].map(BigInt);
  const { length } = measurement;
  const step = chunk ?? bestChunkLength(length);
  const calls = Math.ceil(length / step);
  const n = 2 ** (32 - Math.clz32(calls));

  const tag = (/** @type {number} */ usage) => join(Octets.of(18, 0, 0, 0, 0, 5, 0, usage), ctx);
  const seeds = Array.from({ length: 2 * shares }, (_, place) =>
    rand.slice(SEED * place, SEED * (place + 1)),
  );
  const [leaderBlind, proveSeed] = seeds.splice(-2);
  const helpers = seeds.filter((_, place) => place % 2 == 0);
  const blinds = [leaderBlind, ...seeds.filter((_, place) => place % 2)];

  // The measurement, and randomness that only these shares have.
  const parts = helpers.map((seed, place) => expand(seed, tag(1), Octets.of(place + 1), length));
  const leader = parts.reduce(minus, measurement);
  const publicShare = join(
    ...[leader, ...parts].map((share, aggregator) =>
      deriveSeed(blinds[aggregator], tag(7), join(Octets.of(aggregator), nonce, encoded(share))),
    ),
  );
  const jointSeed = deriveSeed(new Octets(SEED), tag(6), publicShare);
  const joint = expand(jointSeed, tag(3), Octets.of(1), calls);

  // The wires: seed i, and input i of each call of the gadget, which sums the products of pairs.
  const wireSeeds = expand(proveSeed, tag(4), Octets.of(1), 2 * step);
  const wires = wireSeeds.map((seed) => [seed, ...new Array(n - 1).fill(0n)]);
  for (let call = 0; call < calls; call++)
    for (let j = 0, r = joint[call]; j < step; j++, r = mod(r * joint[call])) {
      const element = measurement[call * step + j] ?? 0n;
      wires[2 * j][call + 1] = mod(r * element);
      wires[2 * j + 1][call + 1] = mod(element - 1n);
    }

  // Twice as many values of each wire's polynomial, and of the gadget's; the last one follows.
  const roots = rootsOfUnity(2 * n);
  const backwards = Array.from({ length: n }, (_, place) => roots[(2 * n - 2 * place) % (2 * n)]);
  const inverse = power(BigInt(n), MODULUS - 2n);
  const extended = wires.map((wire) => {
    const coefficients = transform(wire, backwards).map((value) => mod(value * inverse));
    return transform([...coefficients, ...new Array(n).fill(0n)], roots);
  });
  const gadget = Array.from({ length: 2 * n - 1 }, (_, place) => {
    let sum = 0n;
    for (let j = 0; j < 2 * step; j += 2) sum += extended[j][place] * extended[j + 1][place];
    return mod(sum);
  });
  const proof = [...wireSeeds, ...gadget];
  const leaderProof = helpers
    .map((seed, place) => expand(seed, tag(2), Octets.of(1, place + 1), proof.length))
    .reduce(minus, proof);
  return [
    publicShare,
    [
      join(encoded([...leader, ...leaderProof]), leaderBlind),
      ...helpers.map((seed, place) => join(seed, blinds[place + 1])),
    ],
  ];
};
