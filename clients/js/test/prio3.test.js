/** The vectors of draft-irtf-cfrg-vdaf-20, which Python passes too. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { hex, sha256, ShoalError } from "../src/bytes.js";
import {
  bestChunkLength,
  deriveSeed,
  expand,
  MODULUS,
  randSize,
  shard,
  turboshake128,
} from "../src/prio3.js";
import { unhex } from "./help.js";

const folder = new URL("../../../tests/vectors/vdaf/", import.meta.url);
const vector = (name) => JSON.parse(readFileSync(new URL(`${name}.json`, folder), "utf8"));

/** Bytes, least significant first, as a number. */
const number = (bytes) => bytes.reduceRight((value, byte) => value * 256n + BigInt(byte), 0n);

test("TurboSHAKE128 at the edges of a block", () => {
  const stream = turboshake128(new Uint8Array(3), 400);
  for (const length of [0, 1, 3, 4, 167, 168, 169, 336, 337])
    assert.deepEqual(turboshake128(new Uint8Array(3), length), stream.slice(0, length));
  const made = [166, 167, 168, 169].map((size) => hex(turboshake128(new Uint8Array(size), 8)));
  assert.equal(new Set(made).size, 4);
});

test("XofTurboShake128", () => {
  const { seed, dst, binder, length, derived_seed, expanded_vec_field128 } =
    vector("XofTurboShake128");
  const inputs = [seed, dst, binder].map(unhex);
  assert.equal(hex(deriveSeed(...inputs)), derived_seed);
  const bytes = unhex(expanded_vec_field128);
  const elements = Array.from({ length }, (_, i) => number(bytes.slice(16 * i, 16 * i + 16)));
  assert.deepEqual(expand(...inputs, length), elements);
  assert.ok(elements.every((element) => element < MODULUS));
});

for (const name of [0, 1, 2].map((index) => `Prio3MultihotCountVec_${index}`))
  test(name, () => {
    const { ctx, reports, max_weight, chunk_length, shares } = vector(name);
    for (const { measurement, nonce, rand, public_share, input_shares } of reports) {
      const [open, inputs] = shard(
        unhex(ctx),
        measurement,
        max_weight,
        unhex(nonce),
        unhex(rand),
        chunk_length,
        shares,
      );
      assert.equal(hex(open), public_share);
      assert.deepEqual(inputs.map(hex), input_shares);
    }
  });

for (const one of vector("reference_sizes"))
  test(`${one.length} bits, of which at most ${one.max_weight} are set`, async () => {
    const [ctx, nonce, rand] = [one.ctx, one.nonce, one.rand].map(unhex);
    const [open, inputs] = shard(ctx, [...one.measurement].map(Number), one.max_weight, nonce, rand);
    assert.deepEqual([open, ...inputs].map((share) => share.length), one.sizes);
    assert.equal(hex(await sha256(open, ...inputs)), one.shard_sha256);
  });

test("chunks as in Python", () => {
  assert.deepEqual([1, 14, 46, 107, 1010].map(bestChunkLength), [1, 5, 7, 8, 33]);
});

test("what is no measurement", () => {
  const [nonce, rand] = [new Uint8Array(16), new Uint8Array(randSize())];
  const none = new Uint8Array(0);
  shard(none, [1, 0, true, false], 2, nonce, rand);
  for (const bits of [[1, 1, 1, 0], [2, 0, 0, 0], [NaN, 0, 0, 0], [0.5, 0, 0, 0]])
    assert.throws(() => shard(none, bits, 2, nonce, rand), ShoalError);
  assert.throws(() => shard(none, [1], 1, nonce.slice(1), rand), ShoalError);
  assert.throws(() => shard(none, [1], 1, nonce, rand.slice(1)), ShoalError);
});
