/** One plan in one browser, with a collector or a relay that is only pretended. */

import assert from "node:assert/strict";
import test from "node:test";

import { canonical, hex, join, sha256 } from "../src/bytes.js";
import { encoding, isMoved, layout } from "../src/survey.js";
import { memoryStore, rowOf, vectors } from "./help.js";

// The sources, or what was built of them.
const { kinds, shoal, ShoalError } = await import(process.env.SHOAL_CLIENT ?? "../shoal.js");
const { relay } = await import(process.env.SHOAL_RELAY ?? "../relay.js");

const { moreKinds } = await import(process.env.SHOAL_KINDS ?? "../kinds.js");

const [{ plan: LOCAL }] = vectors("plans.json");
const HOUR = 3600;
const DAY = 864e5;
const encoder = { name: "Ed25519" };

/** A collector that signs, answers reports with the statuses that are given, and notes requests. */
async function collector(content, { statuses = [202], status = 200, headers = {} } = {}) {
  const pair = await crypto.subtle.generateKey(encoder, true, ["sign", "verify"]);
  const sign = async (text) =>
    Buffer.from(await crypto.subtle.sign(encoder, pair.privateKey, join(text))).toString("base64url");
  const crowd = await crypto.subtle.generateKey("X25519", true, ["deriveBits"]);
  const raw = Buffer.from(await crypto.subtle.exportKey("raw", crowd.publicKey));
  const id = hex(await sha256(canonical(content)));
  const requests = [];
  const self = {
    id,
    requests,
    statuses,
    cosigners: [],
    sign,
    crowdKey: (window) => ({
      crowd: 1,
      key: raw.toString("base64url"),
      plan: id,
      suite: "X25519, HKDF-SHA256, AES-128-GCM",
      version: 1,
      window,
    }),
    key: Buffer.from(await crypto.subtle.exportKey("raw", pair.publicKey)).toString("base64url"),
    raw,
    fetch: async (url, options) => {
      const path = url.replace("https://to.example", "");
      requests.push({ path, ...options });
      if (self.isOffline) throw new TypeError("Failed to fetch");
      if (options.method == "POST") {
        const next = statuses.length > 1 ? statuses.shift() : statuses[0];
        return new Response(null, { status: next, headers });
      }
      let text = JSON.stringify({ id, ...content });
      if (path.includes("crowd-key")) text = canonical(self.crowdKey(+path.split("=")[1]));
      const signers = [self, ...self.cosigners].map((one) => one.sign(text));
      const signatures = (await Promise.all(signers)).join(", ");
      return new Response(text, { status, headers: { "Shoal-Signature": signatures } });
    },
  };
  return self;
}

const posts = ({ requests }) => requests.filter(({ method }) => method == "POST");

const open = (server, options = {}) =>
  shoal({ plan: server.id, to: "https://to.example", relay, fetch: server.fetch, store: memoryStore(), ...options });

test("an answer is randomized once and sent until it is accepted", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1e12 });
  const server = await collector(LOCAL, { statuses: [500, 503, 202] });
  const client = open(server, { key: server.key });
  const { survey, localEpsilon } = await client.plan();
  assert.deepEqual(survey, LOCAL.survey);
  assert.equal(localEpsilon.toFixed(6), "2.197225");
  assert.deepEqual(await client.send(), []);
  const ticket = await client.answer({ features: ["sync"] });
  assert.equal(ticket.state, "waiting");
  for (const expected of ["waiting", "waiting", "sent", "sent"]) {
    const [{ state }] = await client.send();
    assert.equal(state, expected);
    t.mock.timers.tick(DAY);
  }
  const sent = posts(server);
  assert.equal(sent.length, 3);
  for (const { body, path, headers } of sent) {
    assert.deepEqual(body, sent[0].body);
    assert.equal(path, `/v1/plans/${server.id}/reports`);
    assert.deepEqual(headers, { "Content-Type": "application/vnd.shoal.reports" });
  }
  assert.equal(sent[0].body.length, 63);
  // Nothing of a report that was accepted is kept.
  assert.deepEqual(await client.send(), [{ state: "sent", window: 0 }]);
});

test("a request tells as little as it can", async () => {
  const server = await collector(LOCAL);
  const client = open(server);
  await client.answer({ features: [] });
  await client.send();
  for (const request of server.requests) {
    assert.equal(request.credentials, "omit");
    assert.equal(request.referrerPolicy, "no-referrer");
    assert.equal(request.redirect, "error");
    assert.equal(request.keepalive ?? false, request.method == "POST");
  }
  // The plan is fetched once.
  assert.deepEqual(server.requests.map(({ method }) => method), ["GET", "POST"]);
});

test("a plan is answered once, in however many tabs", async () => {
  const server = await collector(LOCAL);
  const store = memoryStore();
  const tabs = [open(server, { store }), open(server, { store }), open(server, { store })];
  const tickets = await Promise.all(tabs.map((tab, i) => tab.answer({ features: i ? ["vpn"] : ["sync"] })));
  assert.equal(tickets.filter(({ isNew }) => isNew).length, 1);
  await Promise.all(tabs.map((tab) => tab.send()));
  const bodies = posts(server).map(({ body }) => hex(body));
  assert.equal(new Set(bodies).size, 1);
  assert.deepEqual(await tabs[0].answer({ features: [] }), { state: "sent", window: 0, isNew: false });
  assert.equal(posts(server).length, bodies.length);
});

test("offline nothing is lost, and the next attempt waits", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1e12 });
  const server = await collector(LOCAL);
  const client = open(server);
  await client.plan();
  server.isOffline = true;
  await client.answer({ features: [] });
  const [first] = await client.send();
  assert.deepEqual([first.state, first.reason], ["waiting", "no answer"]);
  assert.ok(first.due >= 1e12 && first.due < 1e12 + 3e4);
  server.isOffline = false;
  if (first.due > 1e12) assert.equal((await client.send())[0].state, "waiting");
  t.mock.timers.tick(3e4);
  assert.equal((await client.send())[0].state, "sent");
});

test("a collector may ask to wait, for a day at most", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1e12 });
  for (const [text, least, most] of [["3600", 36e5, 36e5], ["1e12", DAY, DAY], ["soon", 0, 0], ["-9", -9e3, 0]]) {
    const server = await collector(LOCAL, { statuses: [503], headers: { "Retry-After": text } });
    const client = open(server);
    await client.answer({ features: [] });
    const [{ due, reason }] = await client.send();
    assert.equal(reason, "the collector said 503");
    assert.ok(due >= 1e12 + least && due < 1e12 + most + 3e4, `${text}: ${due - 1e12}`);
  }
});

test("a closed plan takes nothing more", async () => {
  const server = await collector(LOCAL, { statuses: [410] });
  const client = open(server);
  await client.answer({ features: [] });
  assert.deepEqual(await client.send(), [{ state: "expired", window: 0 }]);
});

test("a clock that is wrong", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1e12 });
  const window = Math.floor(1e9 / 86400);
  const daily = { ...LOCAL, window: 86400 };
  // A day ahead the collector says 425, a day behind 410. Either way the report waits for the clock.
  for (const status of [425, 410]) {
    const server = await collector(daily, { statuses: [status, 202] });
    const client = open(server);
    await client.answer({ features: [] });
    const [{ state, reason }] = await client.send();
    assert.deepEqual([state, reason], ["waiting", `the collector said ${status}`]);
    t.mock.timers.tick(3e4);
    assert.deepEqual(await client.send(), [{ state: "sent", window }]);
    t.mock.timers.reset();
    t.mock.timers.enable({ apis: ["Date"], now: 1e12 });
  }
  // When its window and the next one are over, it goes.
  const server = await collector(daily, { statuses: [425] });
  const client = open(server);
  await client.answer({ features: [] });
  await client.send();
  t.mock.timers.setTime((window + 2) * DAY + 1);
  assert.deepEqual(await client.send(), [{ state: "expired", window }]);
  // A clock that was far ahead and is set right does not hold a report back.
  const other = await collector(LOCAL, { statuses: [503, 202] });
  const set = open(other);
  await set.answer({ features: [] });
  await set.send();
  t.mock.timers.setTime(5e11);
  assert.deepEqual(await set.send(), [{ state: "sent", window: 0 }]);
});

test("what came for one address is sent to no other", async () => {
  const server = await collector(LOCAL);
  const store = memoryStore();
  await open(server, { store }).answer({ features: [] });
  const moved = open(server, { store, to: "https://elsewhere.example" });
  assert.equal((await moved.send())[0].state, "waiting");
  assert.equal(posts(server).length, 0);
});

/** @type {[string, object, object, RegExp][]} */
const REFUSED = [
  ["another version", { version: 3 }, {}, /version 3 is not known/],
  ["above the limit", {}, { limit: 2 }, /2\.1972, above the limit of 2/],
  ["a broken local promise", { promise: { ...LOCAL.promise, epsilon: "2" } }, {}, /above the limit of 2/],
  ["a crowd's promise without a limit", { promise: { kind: "proven", epsilon: "1", delta: "1e-6", eta: null } }, {}, /above the limit of 0/],
  ["q of one half", { q: [1, 1] }, {}, /bounds/],
  ["q of zero", { q: [0, 1] }, {}, /bounds/],
  ["a short window", { window: HOUR - 1 }, {}, /bounds/],
  ["cohorts without text", { cohorts: 4 }, {}, /bounds/],
  ["a kind of the future", { survey: { name: "s", questions: [{ kind: "date", name: "d", by: "month" }] } }, {}, /kind date is not known/],
  ["too many bits", { survey: { name: "s", questions: [{ kind: "text", name: "d", bits: 65537, hashes: 1, cohorts: 1 }] }, cohorts: 1 }, { limit: 99 }, /bounds/],
  ["a relay without a key", { parties: { relay: "https://to.example", analyzer: "https://a.example" } }, {}, /needs a key/],
  ["a relay of another name", { parties: { relay: "https://r.example", analyzer: "https://a.example" } }, { key: "ours" }, /relay.js, and to: https:\/\/r.example/],
  ["a relay without its file", { parties: { relay: "https://to.example", analyzer: "https://a.example" } }, { key: "ours", relay: undefined }, /relay.js/],
  ["counts with a relay", { view: "counts", parties: { relay: "https://to.example", analyzer: "https://a.example" } }, { key: "ours" }, /relay.js/],
];
for (const [what, change, options, sentence] of REFUSED)
  test(`refused: ${what}`, async () => {
    const server = await collector({ ...LOCAL, ...change });
    if (options.key) options.key = server.key;
    const client = open(server, options);
    await assert.rejects(client.answer({ features: [] }), (error) => {
      assert.ok(error instanceof ShoalError);
      assert.match(error.message, sentence);
      return true;
    });
    assert.equal(posts(server).length, 0);
  });

test("refused: another plan, no plan, a wrong signature", async () => {
  const server = await collector(LOCAL);
  await assert.rejects(open(server, { plan: "0".repeat(64) }).plan(), /this is another plan/);
  const other = await collector(LOCAL);
  await assert.rejects(open(server, { key: other.key }).plan(), /the pinned key did not sign this/);
  const missing = await collector(LOCAL, { status: 404 });
  await assert.rejects(open(missing).plan(), /the collector said 404/);
});

test("while a key changes, the old and the new one are both good", async () => {
  const [old, server] = [await collector(LOCAL), await collector(LOCAL)];
  server.cosigners = [old];
  for (const key of [old.key, server.key])
    assert.equal((await open(server, { key }).plan()).version, 2);
  server.cosigners = [];
  await assert.rejects(open(server, { key: old.key }).plan(), /has it changed/);
});

const RELAY = { relay: "https://to.example", analyzer: "https://a.example" };

test("a report is encrypted for the crowd, and encrypted again when the crowd's key changed", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1e12 });
  const server = await collector({ ...LOCAL, parties: RELAY }, { statuses: [503, 412, 202] });
  const client = open(server, { key: server.key });
  await client.answer({ features: ["sync"] });
  assert.equal((await client.send())[0].state, "waiting");
  t.mock.timers.tick(3e4);
  assert.equal((await client.send())[0].state, "sent");
  const bodies = posts(server).map(({ body }) => body);
  assert.equal(bodies.length, 3);
  for (const body of bodies) {
    assert.equal(body.length, 79 + 16 + 48 + 17);
    assert.equal(hex(body.slice(43, 75)), hex(await sha256(server.raw)));
    assert.equal(hex(body.slice(79, 95)), hex(bodies[0].slice(79, 95)));
  }
  // The first retry is the same bytes; after 412 they are encrypted anew.
  assert.deepEqual(bodies[0], bodies[1]);
  assert.notDeepEqual(bodies[1].slice(95), bodies[2].slice(95));
  assert.equal(server.requests.filter(({ path }) => path.includes("crowd-key")).length, 2);
});

test("a report is encrypted for three crowds at most", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1e12 });
  const content = { ...LOCAL, parties: RELAY };
  const server = await collector(content, { statuses: [412, 503, 412, 412, 202] });
  const client = open(server, { key: server.key });
  await client.answer({ features: ["sync"] });
  assert.equal((await client.send())[0].state, "waiting");
  t.mock.timers.tick(3e4);
  assert.equal((await client.send())[0].state, "expired");
  t.mock.timers.tick(9e7);
  await client.send();
  assert.equal(server.requests.filter(({ path }) => path.includes("crowd-key")).length, 3);
  assert.equal(new Set(posts(server).map(({ body }) => hex(body))).size, 3);
});

test("a crowd's key must be signed and for this plan and window", async () => {
  const content = { ...LOCAL, parties: RELAY };
  for (const change of [{ plan: "0".repeat(64) }, { window: 1 }, { version: 2 }]) {
    const server = await collector(content);
    const honest = server.crowdKey;
    server.crowdKey = (window) => ({ ...honest(window), ...change });
    const client = open(server, { key: server.key });
    await client.answer({ features: [] });
    const [{ state, reason }] = await client.send();
    assert.deepEqual([state, reason], ["waiting", "the key is not this crowd's."]);
    assert.equal(posts(server).length, 0);
  }
});

test("a number is rounded afresh, and with memory always the same way", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1e12 });
  const survey = {
    name: "n",
    questions: [{ kind: "number", name: "n", low: "0", high: "1", points: 2 }],
  };
  const rows = async (server, options, times) => {
    for (let time = 0; time < times; time++) {
      const client = open(server, options);
      await client.answer({ n: 0.5 });
      await client.send();
      t.mock.timers.tick(DAY);
    }
    return new Set(posts(server).map(({ body }) => body.at(-1)));
  };
  // Flips are so rare that none is seen. One row of 64 only has a probability of 2^-63.
  const q = [1, 50];
  assert.deepEqual([...(await rows(await collector({ ...LOCAL, survey, q }), { limit: 200 }, 64))].sort(), [1, 2]);
  const memory = { q1: q, q2: q };
  const server = await collector({ ...LOCAL, survey, memory, window: 86400 });
  assert.equal((await rows(server, { store: memoryStore(), limit: 200 }, 64)).size, 1);
  assert.equal(posts(server).length, 64);
});

test("with memory a plan is answered in each window, on permanent flips", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1e12 });
  const options = Array.from({ length: 100 }, (_, place) => `${place}`);
  const survey = { name: "s", questions: [{ kind: "flags", name: "f", options }] };
  // Fresh flips are so rare here that none is seen; false alarm: 3e-9.
  const memory = { q1: [1, 2], q2: [1, 40] };
  const server = await collector({ ...LOCAL, survey, memory, window: 86400 });
  const client = open(server, { limit: 200 });
  for (const f of [[], [], ["0"]]) {
    await client.answer({ f });
    await client.answer({ f });
    await client.send();
    t.mock.timers.tick(DAY);
  }
  const rows = posts(server).map(({ body }) => hex(body.slice(62)));
  assert.equal(rows.length, 3);
  assert.equal(rows[0], rows[1]);
  assert.notEqual(rows[0], "00".repeat(13));
  assert.notEqual(rows[1].slice(2), rows[2].slice(2));
  const ids = posts(server).map(({ body }) => hex(body.slice(42, 58)));
  assert.equal(new Set(ids).size, 3);
});

test("permanent flips survive an edit of words, and no other", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1e12 });
  const options = Array.from({ length: 100 }, (_, place) => `option ${place}`);
  const memory = { q1: [1, 2], q2: [1, 40] };
  const store = memoryStore();
  /** The row that is sent of no flag at all; fresh flips are so rare that none is seen. */
  const row = async (changes, name = "f", survey = "s") => {
    t.mock.timers.tick(DAY);
    const questions = [{ kind: "flags", name, options, ...changes.question }];
    const server = await collector({
      ...LOCAL, memory, window: 86400, survey: { name: survey, questions }, ...changes.plan,
    });
    const client = open(server, { limit: 1e3, store });
    await client.answer({ [name]: [] });
    await client.send();
    return hex(posts(server)[0].body.slice(62));
  };
  const first = await row({});
  const words = [...options];
  for (const place of [3, 5, 7]) {
    words[place] = `another word ${place}`;
    assert.equal(await row({ question: { options: [...words] } }), first);
  }
  // Titles are words too; two that are swapped move an answer to another bit.
  const titles = { "option 1": "First", "option 2": "Second" };
  const titled = { title: "Flags", text: "Which?", titles };
  assert.equal(await row({ question: { options: [...words], ...titled } }), first);
  const swapped = { "option 1": "Second", "option 2": "First" };
  assert.notEqual(await row({ question: { options: [...words], titles: swapped } }), first);
  // With other = true an option is a rule: an answer that is no longer listed sets another bit.
  const unlisted = await row({ question: { options, other: true } });
  assert.equal(await row({ question: { options, other: true, titles } }), unlisted);
  assert.notEqual(await row({ question: { options: [...words], other: true } }), unlisted);
  // Two edits that each rename an option, and together move a word, draw new flips.
  const moved = ["option 5", ...words.slice(1)];
  assert.notEqual(await row({ question: { options: moved } }), first);
  assert.equal(await row({}, "g"), first);
  assert.equal(await row({ plan: { window: 7200, crowd_size: 50 } }), first);
  const turned = { question: { options: [...options].reverse() } };
  const second = await row(turned);
  const others = [
    second,
    await row({ question: { options: [...options, "one more"] } }),
    await row({ question: { at_most: 100 } }),
    await row({ plan: { memory: { q1: [3, 3], q2: [1, 40] } } }),
    await row({}, "f", "another survey"),
  ];
  assert.equal(new Set([first, ...others]).size, 6);
  // Plans that take turns keep their flips.
  assert.equal(await row({}), first);
  assert.equal(await row(turned), second);
});

test("text is reported with the cohort that it was hashed in", async () => {
  const question = { kind: "text", name: "word", bits: 64, hashes: 2, cohorts: 300 };
  const server = await collector({ ...LOCAL, q: [1, 40], cohorts: 300, survey: { name: "s", questions: [question] } });
  const client = open(server, { limit: 200 });
  await client.answer({ word: "shoal" });
  await client.send();
  const [{ body }] = posts(server);
  assert.equal(body.length, 42 + 20 + 2 + 8);
  assert.ok(body[62] + 256 * body[63] < 300);
});

test("every answer of the vectors arrives as its bits, or makes no report", async () => {
  Object.assign(kinds, moreKinds);
  for (const { shows, survey, answers, bits, set } of vectors("client_vectors.json").encodings) {
    // Flips are so rare here that none is seen; false alarm: 1e-12.
    const server = await collector({ ...LOCAL, survey, q: [1, 52] });
    const client = open(server, { limit: 1e9 });
    const answered = client.answer(answers);
    if (set) await answered;
    else await assert.rejects(answered, ShoalError, shows);
    await client.send();
    const rows = posts(server).map(({ body }) => body.slice(62));
    assert.deepEqual(rows, set ? [rowOf(bits, set)] : [], shows);
  }
});

test("an answer outside the domain makes no report", async () => {
  const server = await collector(LOCAL);
  const client = open(server);
  await assert.rejects(client.answer({ features: ["sync", "cookies"] }), /question features: .*cookies/);
  await assert.rejects(client.answer({}), /question features: undefined is not flags/);
  assert.deepEqual(await client.send(), []);
});

test("without a place to keep things nothing is answered", async () => {
  const server = await collector(LOCAL);
  const client = shoal({ plan: server.id, to: "https://to.example", fetch: server.fetch });
  await assert.rejects(client.answer({ features: [] }), /this browser stores nothing/);
  assert.equal(server.requests.length, 0);
});

test("two texts that are swapped have moved", () => {
  const words = (...texts) => {
    const questions = texts.map((text, place) => ({ kind: "yes/no", name: `q${place}`, text }));
    return encoding({ survey: { name: "s", questions } }, layout({ questions })[0])[1];
  };
  assert.ok(isMoved(words("Do you smoke?", "Do you drink?"), words("Do you drink?", "Do you smoke?")));
  assert.ok(!isMoved(words("Do you smoke?", undefined), words(undefined, "Do you drink?")));
});
