/** Telemetry in Node.js: one report per window, the same bytes on a retry, nothing before a yes. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import { canonical } from "../src/bytes.js";
import { catalogue, details, isYes, questionText, widthOf, wordsFor, wrapped } from "../src/node/consent.js";
import { agreementFolder, agreements, agreementText } from "../src/node/files.js";
import { merge, readTerms, work } from "../src/node/worker.js";
import { openTelemetry, ShoalError } from "../telemetry.js";

const DAY = 86_400;

/** A plan with a daily window; with memory its permanent flips have q1 = 1/4. */
const planOf = (options, memory = false) => ({
  version: 2,
  window: DAY,
  q: [3, 4],
  cohorts: null,
  crowd_size: 100,
  max_reports_per_person: 1,
  memory: memory ? { q1: [1, 2], q2: [1, 2] } : null,
  parties: null,
  promise: { kind: "proven", epsilon: "1", delta: "1e-6", eta: null },
  survey: { name: "tool", questions: [{ kind: "flags", name: "used", options }] },
  view: "reports",
});

/** One device, a clock and a collector. */
async function person(t, { plan = planOf(["a", "b"]), limit = 100 } = {}) {
  const self = { now: 20_000 * DAY, status: 202, bodies: [], headers: [] };
  const server = createServer(async (request, reply) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    self.bodies.push(Buffer.concat(parts).toString("hex"));
    self.headers.push(Object.keys(request.headers));
    reply.writeHead(self.status).end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const home = join(mkdtempSync(join(tmpdir(), "shoal-")), "telemetry");
  const to = `http://127.0.0.1:${server.address().port}`;
  const open = (other = plan) =>
    openTelemetry({ tool: "tool", plan: other, to, limit, folder: home, environ: {}, ask: false, now: () => self.now });
  const folder = agreementFolder(home, agreementText(JSON.stringify(plan), to, `${limit}`));
  const run = () => work({ tool: "tool", home, folder, environ: {}, now: () => self.now });
  return Object.assign(self, { home, folder, open, work: run, days: (number) => (self.now += number * DAY) });
}

test("one report per window", async (t) => {
  const p = await person(t);
  const tool = await p.open();
  await tool.record({ used: "a" });
  assert.ok(!existsSync(p.home));
  await tool.command("on"); // what was recorded in this run is kept
  for (let window = 1; window <= 3; window++) {
    p.days(1);
    await Promise.all([p.work(), p.work(), p.work()]);
    assert.equal(new Set(p.bodies).size, window);
    await tool.record({ used: ["b"] });
  }
  p.days(-2); // a clock that is set back makes no second report of a window
  await tool.record({ used: "a" });
  await p.work();
  assert.equal(new Set(p.bodies).size, 3);
  assert.match(await tool.command("status"), /3 sent, 0 waiting/);
  assert.deepEqual(p.headers[0].sort(), ["connection", "content-length", "content-type", "host"]);
});

test("retries have the same bytes, until the window is over", async (t) => {
  const p = await person(t);
  p.status = 503;
  const tool = await p.open();
  await tool.command("on");
  await tool.record({ used: "a" });
  p.days(1);
  for (let hour = 0; hour < 12; hour++) {
    await p.work();
    p.now += 3600;
  }
  assert.ok(p.bodies.length > 2);
  assert.equal(new Set(p.bodies).size, 1);
  p.days(2);
  await p.work();
  assert.match(await tool.command("status"), /0 sent, 0 waiting, 1 expired/);
});

test("the limit is of all reports", async (t) => {
  const p = await person(t, { limit: 6 }); // 2 ln(13/3) = 2.933 each
  const tool = await p.open();
  await tool.command("on");
  for (let window = 0; window < 4; window++) {
    await tool.record({ used: "a" });
    p.days(1);
    await p.work();
  }
  assert.equal(p.bodies.length, 2);
  assert.match(tool.problem, /above 6/);
});

test("without a limit a local promise is of each report", async (t) => {
  const promise = { kind: "local", epsilon: "3", delta: null, eta: null };
  const p = await person(t, { plan: { ...planOf(["a", "b"]), promise }, limit: "" });
  const tool = await p.open();
  await tool.command("on");
  for (let window = 0; window < 4; window++) {
    await tool.record({ used: "a" });
    p.days(1);
    await p.work();
  }
  assert.equal(p.bodies.length, 4);
});

test("what can never be sent is an error", async () => {
  const good = { tool: "tool", plan: planOf(["a", "b"]), to: "https://example.org", limit: 3, folder: "/nowhere" };
  for (const [change, sentence] of [
    [{ limit: 2.9 }, /above the limit/],
    [{ limit: undefined }, /above the limit/],
    [{ limit: "much" }, /number above 0/],
    [{ to: "https://example.org/" }, /https:\/\/host/],
    [{ to: "http://example.org" }, /https:\/\/host/],
    [{ tool: "../tool" }, /name of the tool/],
    [{ plan: { ...good.plan, window: null } }, /window/],
    [{ plan: { ...good.plan, window: 60 } }, /bounds/],
    [{ plan: { ...good.plan, version: 9 } }, /version 9/],
    [{ plan: { ...good.plan, parties: { relay: "https://r", analyzer: "https://a" } } }, /relay/],
    [{ plan: sharedPlan("https://l.example", "https://h.example") }, /to must be https:\/\/l.example/],
    [{ plan: sharedPlan("https://l.example", "https://l.example:1", true) }, /one operator/],
  ])
    await assert.rejects(openTelemetry({ ...good, ...change }), (error) => error instanceof ShoalError && sentence.test(error.message), `${canonical(change)}`);
  await openTelemetry(good);
});

/** A plan whose reports are shared by a leader and a helper. */
const sharedPlan = (leader, helper, isOne = false) => ({
  ...planOf(["a", "b"]),
  view: "counts",
  honest_fraction: null,
  parties: { leader, helper, max_weight: 1, one_operator: isOne },
});

test("a leader and a helper: one version of the shares, three keys at most, none after a no", async (t) => {
  const raw = crypto.getRandomValues(new Uint8Array(32));
  const bodies = [];
  let reply = [503, ""];
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    assert.ok(!("user-agent" in request.headers));
    if (request.method == "POST") {
      bodies.push(Buffer.concat(parts).toString("hex"));
      const [status, content] = reply;
      response.writeHead(status, { "Content-Type": "application/ppm-dap;message=upload-errors" }).end(content);
    } else response.end(Buffer.concat([Buffer.of(0, 41, window % 256, 0, 32, 0, 1, 0, 1, 0, 32), raw]));
  });
  await new Promise((resolve) => server.listen(0, resolve));
  t.after(() => server.close());
  const { port } = server.address();
  const to = `http://127.0.0.1:${port}`;
  const plan = sharedPlan(to, `http://localhost:${port}`);
  let now = 20_000 * DAY;
  let window = 20_001;
  const home = join(mkdtempSync(join(tmpdir(), "shoal-")), "telemetry");
  const tool = await openTelemetry({ tool: "tool", plan, to, limit: 100, folder: home, environ: {}, ask: false, now: () => now });
  const folder = agreementFolder(home, agreementText(JSON.stringify(plan), to, "100"));
  const run = () => work({ tool: "tool", home, folder, environ: {}, now: () => now });
  const shares = () => readdirSync(folder).filter((name) => name.startsWith("shares."));
  await tool.record({ used: "a" });
  assert.match(await tool.command("on"), new RegExp(`To: ${to} and http://localhost:${port}`));
  now += DAY;
  for (let time = 0; time < 3; time++, now += 3600) await run();
  assert.equal(bodies.length, 3);
  assert.equal(new Set(bodies).size, 1);
  reply = [200, Buffer.concat([Buffer.alloc(16), Buffer.of(11)])]; // outdated_config
  for (let time = 0; time < 5; time++, now += 3600) await run();
  assert.equal(new Set(bodies).size, 3);
  assert.match(await tool.command("status"), /0 waiting, 1 expired/);
  assert.deepEqual(shares(), []);
  await tool.record({ used: "b" });
  now = 20_002 * DAY;
  window = 20_002;
  reply = [503, ""];
  await run();
  assert.equal(shares().length, 1);
  await tool.command("off");
  assert.deepEqual(shares(), []);
});

test("memory: the same answer has the same permanent flips, and any number of windows", async (t) => {
  const plan = planOf([..."abcdefgh"], true);
  const p = await person(t, { plan, limit: 9 }); // 8 ln 3 = 8.79
  const tool = await p.open();
  await tool.command("on");
  const windows = 400;
  for (let window = 0; window < windows; window++) {
    await tool.record({ used: "a" });
    p.days(1);
    await p.work();
  }
  assert.equal(p.bodies.length, windows);
  // Each bit of the permanent vector is flipped with probability 1/4: over many reports its rate is
  // 1/4 or 3/4. A rate near 1/2 would mean that permanent flips are drawn anew. For one bit to be
  // 100 away from the expected 100 or 300 of 400 has a probability below 1e-25.
  for (let bit = 0; bit < 8; bit++) {
    const ones = p.bodies.filter((body) => (parseInt(body.slice(-2), 16) >> bit) & 1).length;
    assert.ok(Math.abs(ones - windows / 2) > 20, `${ones}`);
  }
  assert.equal(readdirSync(join(p.home, "memory")).length, 1);
});

test("after delete the window has no second report", async (t) => {
  const p = await person(t);
  const tool = await p.open();
  await tool.command("on");
  await tool.record({ used: "a" });
  p.days(1);
  await p.work();
  await tool.command("delete");
  assert.deepEqual(readdirSync(p.home).sort(), ["off", "quiet"]);
  await tool.command("on");
  p.now -= DAY;
  await tool.record({ used: "a" });
  p.now += DAY;
  await p.work();
  assert.equal(p.bodies.length, 1);
  await tool.record({ used: "a" });
  p.days(1);
  await p.work();
  assert.equal(p.bodies.length, 2);
});

test("a no deletes what was not sent, and nothing is recorded after it", async (t) => {
  const p = await person(t);
  const tool = await p.open();
  await tool.command("on");
  await tool.record({ used: "a" });
  await tool.command("off");
  await tool.record({ used: "b" });
  p.days(1);
  await p.work();
  assert.deepEqual(p.bodies, []);
  assert.deepEqual(agreements(p.home).flatMap((folder) => readdirSync(folder)).sort(), ["agreed", "due"]);
});

test("events become one answer", () => {
  const questions = [
    { kind: "flags", name: "used", options: ["a", "b", "c"] },
    { kind: "choice", name: "shell", options: ["sh", "zsh"] },
    { kind: "number", name: "runs", low: "0", high: "10", points: 11 },
    { kind: "yes/no", name: "fresh" },
  ];
  const events = [
    '{"record":{"used":"b","shell":"zsh","runs":2}}',
    '{"record":{"used":["a","b"],"shell":"sh","fresh":false}}',
    '{"count":{"runs":1}}',
    '{"count":{"runs":1}}',
    '{"record":{"fresh":true}}',
    '{"record":{"used":',
  ].join("\n");
  assert.deepEqual(merge({ questions }, events), { used: ["b", "a"], shell: "zsh", runs: 4, fresh: "yes" });
  assert.throws(() => merge({ questions }, ""), /nothing was recorded for question shell/);
});

test("what is dropped is told", async (t) => {
  const tool = await (await person(t)).open();
  for (const wrong of [{ used: "c" }, { other: "a" }, { used: 1.5 }]) {
    await assert.rejects(tool.check(wrong), ShoalError);
    await tool.record(wrong);
    assert.ok(tool.problem);
  }
});

test("a broken file makes no second report", async (t) => {
  const p = await person(t);
  const tool = await p.open();
  await tool.command("on");
  await tool.record({ used: "a" });
  p.days(1);
  writeFileSync(join(p.folder, `report.${p.now / DAY}`), "{");
  await p.work().catch(() => {});
  assert.deepEqual(p.bodies, []);
});

test("a tool may be named like the worker", () => {
  const tool = join(mkdtempSync(join(tmpdir(), "shoal-")), "worker.js");
  writeFileSync(tool, `import(${JSON.stringify(new URL("../telemetry.js", import.meta.url))}).then(() => console.log("runs"))`);
  assert.equal(execFileSync(process.execPath, [tool], { encoding: "utf8" }), "runs\n");
});

test("the question fits the terminal, in every language", async () => {
  const { read } = await readTerms(JSON.stringify(planOf(["a", "b"])), "100");
  const options = { tool: "tool", to: "https://example.org", limit: "100", why: "" };
  for (const [language, words] of Object.entries(catalogue)) {
    assert.ok(isYes(` ${words.yes[0].toUpperCase()}`, words) && !isYes("", words) && !isYes("n", words));
    const text = [questionText(options, read, words, true), ...details(options, read, words)].join("\n");
    assert.doesNotMatch(text, /[{}]|undefined/, language);
    for (const columns of [40, 80, 120])
      for (const line of wrapped(text, columns).split("\n"))
        assert.ok(widthOf(line) <= columns || !line.trim().includes(" "), `${language} ${columns} ${line}`);
  }
  assert.equal(wordsFor({ LANG: "de_DE.UTF-8" }), catalogue.de);
  for (const environ of [{}, { LC_ALL: "C", LANG: "de_DE.UTF-8" }, { LANG: "xx.UTF-8" }, { LANG: "ja_JP.eucJP" }])
    assert.equal(wordsFor(environ), catalogue.en);
});

const ARM = { kind: "arm", name: "start", arms: ["control", "tour", "video"], weights: [2, 1, 1] };
const STEPS = { kind: "funnel", name: "setup", steps: ["installed", "invited"], missing: "option" };
const AGES = { kind: "retention", name: "days", design: "age", periods: 2, period: DAY };
const ONCE = { kind: "retention", name: "days", design: "once", periods: 2, period: DAY };
const USED = { kind: "flags", name: "used", options: ["a"] };

/** Flips are so rare that a report says what was answered: below 1e-10 in a whole test. */
const rarely = (...questions) => ({ ...planOf([]), q: [1, 48], survey: { name: "tool", questions } });

/** The windows and the rows of the reports that arrived, each once. */
const told = ({ bodies }) =>
  [...new Set(bodies)].map((body) => [
    Buffer.from(body, "hex").readUInt32LE(58) - 20_000,
    Buffer.from(body, "hex").subarray(62).toString("hex"),
  ]);

test("an arm is drawn once, by its weights, and only after a yes", async (t) => {
  const p = await person(t, { plan: rarely(ARM, STEPS), limit: 1000 });
  const tool = await p.open();
  for (let again = 0; again < 20; again++) assert.equal(tool.arm("start"), "control");
  assert.ok(!existsSync(p.home));
  assert.throws(() => tool.arm("setup"), ShoalError);
  await assert.rejects(tool.check({ start: "tour" }), /the device answers it itself/);
  await tool.command("on");
  const first = tool.arm("start");
  for (let again = 0; again < 20; again++) assert.equal((await p.open()).arm("start"), first);
  const drawn = { control: 0, tour: 0, video: 0 };
  for (let again = 0; again < 400; again++) {
    rmSync(join(p.home, readdirSync(p.home).find((name) => name.startsWith("arm."))));
    drawn[tool.arm("start")]++;
  }
  // Seven standard deviations: a false alarm has a probability below 1e-10.
  assert.ok(drawn.control > 130 && drawn.control < 270 && drawn.tour > 40 && drawn.video > 40);
});

test("one report about the first two windows", async (t) => {
  const plan = rarely(ARM, STEPS);
  const p = await person(t, { plan, limit: 1000 });
  const tool = await p.open();
  await tool.command("on");
  const arm = { control: 1, tour: 2, video: 4 }[tool.arm("start")];
  await tool.record({ setup: "invited" });
  p.days(1);
  await tool.record({ setup: "installed" });
  await p.work();
  assert.deepEqual(told(p), []);
  p.days(1);
  for (const days of [0, 1, -30, 60, 1]) {
    p.days(days);
    await tool.record({ setup: "installed" });
    await Promise.all([p.work(), p.work()]);
  }
  assert.deepEqual(told(p), [[2, (arm | 16).toString(16).padStart(2, "0")]]);
  const upgraded = await p.open({ ...plan, q: [3, 49] });
  await upgraded.command("on");
  p.days(5);
  for (const folder of agreements(p.home)) await work({ tool: "tool", home: p.home, folder, environ: {}, now: () => p.now });
  assert.equal(told(p).length, 1);
  await tool.command("delete");
  p.days(1);
  await tool.command("on"); // a new device
  tool.arm("start");
  p.days(2);
  await p.work();
  assert.equal(told(p).length, 2);
});

test("an arm that is drawn too late is not reported", async (t) => {
  const p = await person(t, { plan: rarely(ARM, STEPS), limit: 1000 });
  const tool = await p.open();
  await tool.command("on");
  p.days(2);
  await p.work();
  tool.arm("start");
  await p.work();
  p.days(1);
  await p.work();
  assert.deepEqual(told(p), []);
  assert.match(tool.problem, /did not call arm/);
});

test("ages are reported in their periods", async (t) => {
  const p = await person(t, { plan: rarely(AGES), limit: 1000 });
  const tool = await p.open();
  await tool.command("on");
  for (const days of [0, 0, 2, -1, -5, 6, 1]) {
    p.days(days);
    await p.work();
  }
  assert.deepEqual(told(p), [[0, "01"], [2, "04"]]);
  await assert.rejects(readTerms(JSON.stringify(rarely(AGES)), "150"), /3 reports of a device/);
});

test("a daemon reports its active periods once", async (t) => {
  const p = await person(t, { plan: rarely(ONCE, USED), limit: 1000 });
  const tool = await p.open();
  await tool.command("on");
  for (const active of [true, false, true, true]) {
    if (active) await tool.record({ used: "a" });
    await p.work();
    p.days(1);
  }
  await p.work();
  assert.deepEqual(told(p), [[3, "06"]]);
});

test("the person is told about the past", async (t) => {
  const p = await person(t, { plan: rarely(ARM, AGES, STEPS), limit: 1000 });
  const status = (await (await p.open()).command("status")).replace(/\s+/g, " ");
  for (const words of [
    "one report a day in which you use it (at most 3 in all), about the time since you said yes",
    "the variant of an experiment that this machine drew at random and keeps: one of control, tour, video",
    "for how many such periods you have used it, one of 0, 1, 2",
    "the furthest step that you reached, one of installed, invited",
  ])
    assert.ok(status.includes(words), words);
});
