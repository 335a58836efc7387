/** The vectors that all languages share: `docs/clients.md` says what they are. */

import assert from "node:assert/strict";
import test from "node:test";

import { encode } from "../src/answers.js";
import { canonical, decoded, hex, join, little, sha256, ShoalError } from "../src/bytes.js";
import { readPlan } from "../src/plan.js";
import { below, fairBytes, randomize } from "../src/random.js";
import { encrypt } from "../src/encryption.js";
import { isSigned } from "../src/signatures.js";
import { moreKinds } from "../kinds.js";
import { kinds, layout } from "../src/survey.js";
import { encryptionInfo } from "../src/relay.js";
import { packReport } from "../src/wire.js";
import { rowOf, unhex, vectors, withRandom, withSubtle } from "./help.js";

Object.assign(kinds, moreKinds);

const shared = vectors("client_vectors.json");

test("canonical JSON and its hash", async () => {
  for (const { document, text, sha256: digest } of shared.canonical) {
    assert.equal(canonical(document), text);
    assert.equal(hex(await sha256(text)), digest);
  }
});

test("ids of plans", async () => {
  for (const { id, plan } of vectors("plans.json"))
    assert.equal(hex(await sha256(canonical(plan))), id);
});

for (const { shows, survey, answers, bits, set } of shared.encodings)
  test(`encoding: ${shows}`, async () => {
    const places = layout(survey);
    assert.equal(places[1], bits);
    const made = encode(survey, places, answers, 0);
    if (set) assert.deepEqual(await made, rowOf(bits, set));
    else await assert.rejects(made, ShoalError);
  });

test("text, hashed", async () => {
  for (const { question, bits, hashes, cohort, text, positions, survey } of vectors("text_hash_vectors.json"))
    // The survey itself is not among these vectors, only its digest.
    if (survey) {
      const asked = { kind: "text", name: question, bits, hashes, cohorts: 65535 };
      const made = await encodeWithDigest(asked, survey, text, cohort);
      assert.deepEqual(made, rowOf(bits, text.trim() ? positions : []));
    }
});

/** Encode one text as if its survey had this digest. */
async function encodeWithDigest(question, digest, text, cohort) {
  const { subtle } = crypto;
  const real = subtle.digest;
  const survey = { name: "s", questions: [question] };
  let calls = 0;
  const pretended = async (name, content) =>
    calls++ ? real.call(subtle, name, content) : unhex(digest).buffer;
  return withSubtle("digest", pretended, () =>
    encode(survey, layout(survey), { [question.name]: text }, cohort),
  );
}

test("text, with pairs of letters", async () => {
  for (const { survey, bits, rows } of shared.pairs) {
    const places = layout(survey);
    assert.equal(places[1], bits);
    for (const { answer, cohort, set } of rows)
      assert.deepEqual(await encode(survey, places, { word: answer }, cohort), rowOf(bits, set));
  }
});

test("randomizing: the same bits give the same bytes", () => {
  for (const { bits, q, fair, original, synthetic } of shared.randomizer) {
    assert.equal(fairBytes(bits, q), fair.length / 2);
    assert.equal(hex(randomize(unhex(original), bits, q, unhex(fair))), synthetic);
  }
});

test("numbers below a bound", () => {
  for (const { bound, random, drawn } of shared.below) 
    assert.equal(withRandom(random, () => below(bound)), drawn);
});

test("the wire form of a report", () => {
  for (const { plan, id, window, cohort, row, batch } of shared.wire) {
    const rest = cohort == null ? unhex(row) : join(little(cohort, 2), unhex(row));
    assert.equal(hex(packReport(unhex(plan), unhex(id), window, rest)), batch);
  }
});

test("encryption", async () => {
  const { subtle } = crypto;
  for (const one of shared.encryption) {
    const info = encryptionInfo(unhex(one.plan), one.window);
    assert.equal(hex(info), one.info);
    const jwk = { kty: "OKP", crv: "X25519", x: one.ephemeral_public };
    const pair = {
      publicKey: await subtle.importKey("jwk", jwk, "X25519", true, []),
      privateKey: await subtle.importKey("jwk", { ...jwk, d: one.ephemeral_secret }, "X25519", false, [
        "deriveBits",
      ]),
    };
    const key = unhex(one.public_key);
    const encrypted = await withSubtle("generateKey", async () => pair, () =>
      encrypt(unhex(one.content), key, info),
    );
    assert.equal(hex(encrypted), one.encrypted);
    assert.equal(hex(await sha256(key)), one.key_digest);
    const [first, second] = [await encrypt(info, key, info), await encrypt(info, key, info)];
    assert.notDeepEqual(first.slice(0, 32), second.slice(0, 32));
    assert.equal(first.length, info.length + 48);
  }
});

test("signatures, of one key or of two", async () => {
  const { keys, key_document, signatures } = shared.signatures;
  const content = join(key_document);
  assert.equal(canonical(JSON.parse(key_document)), key_document);
  for (const [i, key] of keys.entries()) {
    assert.equal(decoded(key).length, 32);
    assert.equal(await isSigned(key, content, signatures[i]), true);
    assert.equal(await isSigned(key, join(key_document + " "), signatures[i]), false);
    assert.equal(await isSigned(key, content, signatures[(i + 1) % 3]), false);
    assert.equal(await isSigned(key, content, signatures.slice(0, 2).join(", ")), i < 2);
  }
  for (const signature of [null, "", "AAAA", signatures[0].slice(2)])
    assert.equal(await isSigned(keys[0], content, signature), false);
});

test("local epsilons", async () => {
  const { plan } = vectors("plans.json")[0];
  for (const { differing, q, epsilon } of shared.local_epsilons) {
    const survey = {
      name: "s",
      questions: [{ kind: "flags", name: "f", options: Array.from({ length: differing }, (_, place) => `${place}`) }],
    };
    const other = { ...plan, q, survey, promise: { ...plan.promise, epsilon: "1e9" } };
    const text = canonical(other);
    const id = hex(await sha256(text));
    const [{ localEpsilon: computed }] = await readPlan(text, id);
    assert.ok(Math.abs(computed / epsilon - 1) < 4e-16, `${computed} ${epsilon}`);
    // The number itself is a limit that will do, and what is less by a part in 10^14 is not.
    await readPlan(text, id, +epsilon);
    await assert.rejects(readPlan(text, id, epsilon * (1 - 1e-14)), /above the limit/);
  }
});
