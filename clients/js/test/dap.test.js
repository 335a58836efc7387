/** A leader and a helper that are only pretended: the same bytes, few keys, and no login pages. */

import assert from "node:assert/strict";
import test from "node:test";

import { canonical, hex, join, sha256 } from "../src/bytes.js";
import { memoryStore, vectors } from "./help.js";

const { shoal } = await import(process.env.SHOAL_CLIENT ?? "../shoal.js");
const { dap } = await import(process.env.SHOAL_DAP ?? "../dap.js");

const [{ plan: LOCAL }] = vectors("plans.json");
const WEEK = 7 * 86_400;
const NOW = 2000 * WEEK + 1000;
const PARTIES = { leader: "https://l.example", helper: "https://h.example", max_weight: 1, one_operator: false };
const PLAN = { ...LOCAL, crowd_size: 100, honest_fraction: null, view: "counts", window: WEEK, parties: PARTIES };

/** Both aggregators. `replies` are those to uploads, of which the last stays. */
async function aggregators(replies, plan = PLAN) {
  const pair = await crypto.subtle.generateKey("X25519", true, ["deriveBits"]);
  const raw = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  const id = hex(await sha256(canonical(plan)));
  const config = (number) => join(Uint8Array.of(number, 0, 32, 0, 1, 0, 1, 0, 32), raw);
  const keys = join(config(7), config(2000 % 256));
  const self = { id, requests: [], keys: join(Uint8Array.of(0, keys.length), keys) };
  self.fetch = async (url, options) => {
    self.requests.push({ url, ...options });
    if (options.method == "POST") return (replies.length > 1 ? replies.shift() : replies[0])();
    if (url.endsWith("hpke_config")) return new Response(self.keys);
    return new Response(JSON.stringify({ id, ...plan }));
  };
  self.posts = () => self.requests.filter(({ method }) => method == "POST");
  self.asked = () => self.requests.filter(({ url }) => url.endsWith("hpke_config")).map(({ url }) => new URL(url).host);
  self.open = (options = {}) =>
    shoal({ plan: id, to: PARTIES.leader, limit: 9, dap, fetch: self.fetch, store: memoryStore(), ...options });
  return self;
}

const taken = () => new Response(null, { status: 200 });
const busy = () => new Response(null, { status: 503 });
const page = () => new Response("<html>Log in", { headers: { "Content-Type": "text/html" } });
const fault = (number) => () =>
  new Response(join(new Uint8Array(16), Uint8Array.of(number)), {
    headers: { "Content-Type": "application/ppm-dap; message=upload-errors" },
  });

const clock = (t) => t.mock.timers.enable({ apis: ["Date"], now: 1e3 * NOW });

test("the same bytes are sent until the leader has them; a login page is no leader", async (t) => {
  clock(t);
  const both = await aggregators([busy, page, fault(9), taken]);
  const client = both.open();
  await client.answer({ features: ["sync"] });
  for (const state of ["waiting", "waiting", "waiting", "sent"]) {
    assert.equal((await client.send())[0].state, state);
    t.mock.timers.tick(24e4);
  }
  const posts = both.posts();
  assert.equal(posts.length, 4);
  assert.equal(new Set(posts.map(({ body }) => hex(body))).size, 1);
  assert.deepEqual(both.asked(), ["l.example", "h.example"]);
  const [{ url, headers, body }] = posts;
  const task = Buffer.from(both.id, "hex").toString("base64url");
  assert.equal(url, `https://l.example/dap/${task}/tasks/${task}/reports`);
  assert.equal(headers["Content-Type"], "application/ppm-dap;message=upload-req");
  assert.equal(new DataView(body.buffer).getBigUint64(16), 2000n);
});

test("shares are made for three keys at most, of one report", async (t) => {
  clock(t);
  for (const outdated of [4, 11]) {
    const both = await aggregators([fault(outdated)]);
    const client = both.open();
    await client.answer({ features: ["sync"] });
    assert.equal((await client.send())[0].state, "expired");
    t.mock.timers.tick(9e7);
    await client.send();
    const bodies = both.posts().map(({ body }) => hex(body));
    assert.equal(new Set(bodies).size, 3);
    assert.equal(new Set(bodies.map((body) => body.slice(0, 32))).size, 1);
  }
});

test("a report that the leader has already is sent", async (t) => {
  clock(t);
  for (const known of [1, 2]) {
    const both = await aggregators([fault(known)]);
    const client = both.open();
    await client.answer({ features: [] });
    assert.equal((await client.send())[0].state, "sent");
  }
});

test("without a key of this window nothing is sent", async (t) => {
  clock(t);
  const both = await aggregators([taken]);
  const good = both.keys;
  const client = both.open();
  await client.answer({ features: ["sync"] });
  for (const keys of ["", "<html>", good.slice(0, 43), good.slice(0, -1)]) {
    both.keys = keys;
    const [{ state, reason }] = await client.send();
    assert.deepEqual([state, reason], ["waiting", "an aggregator has no key for this window."]);
    t.mock.timers.tick(36e5);
  }
  assert.equal(both.posts().length, 0);
  both.keys = good;
  assert.equal((await client.send())[0].state, "sent");
});

test("which bits are dropped is uniform", () => {
  const [reports, counts] = [400, [0, 0, 0, 0, 0]];
  for (let report = 0; report < reports; report++) {
    const [kept] = dap.kept(/** @type {any} */ ({ parties: { max_weight: 2 } }), Uint8Array.of(31), Uint8Array.of());
    counts.forEach((_, place) => (counts[place] += (kept >> place) & 1));
  }
  assert.equal(counts.reduce((sum, one) => sum + one), 2 * reports);
  // Each is kept in two of five; 6.8 standard deviations for five counts: a false alarm has 1e-10.
  for (const count of counts) assert.ok(Math.abs(count - 0.4 * reports) < 6.8 * (reports * 0.24) ** 0.5);
});

test("what the plan does not say is refused", async () => {
  const both = await aggregators([taken]);
  await assert.rejects(both.open({ dap: undefined }).plan(), /needs dap.js/);
  await assert.rejects(both.open({ to: "https://h.example" }).plan(), /to: https:\/\/l.example/);
  for (const change of [{ view: "reports" }, { window: null }, { parties: { ...PARTIES, max_weight: 3 } }]) {
    const other = await aggregators([taken], { ...PLAN, ...change });
    await assert.rejects(other.open().plan(), /needs dap.js|bounds/);
  }
});
