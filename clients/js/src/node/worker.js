/**
 * The detached process: makes one report of the last complete window, sends it, logs every byte.
 *
 * Several may run at once, be killed, or find the clock changed. A window has one report:
 *
 * 1. The events of the last window before this one are renamed: they become this window's.
 * 2. The report is made, with what it costs, as a file that only one process can make.
 * 3. The events are deleted.
 *
 * After a kill behind 2 the file says that the events are done; after one before 2 there is none, and
 * the next worker goes on with 2.
 */

import { randomBytes } from "node:crypto";
import { appendFileSync, existsSync, renameSync, rmSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { encode, folded, strip } from "../answers.js";
import { canonical, hex, little, sha256, ShoalError } from "../bytes.js";
import { dap } from "../dap.js";
import { moreKinds } from "../kinds.js";
import { readPlan } from "../plan.js";
import { below, draw, fairBytes, randomize } from "../random.js";
import { kinds } from "../survey.js";
import { packReport } from "../wire.js";
import { whyOff } from "./environment.js";
import {
  agreements, createFile, readAgreement, readChoice, readText, storedAgreement, storeFile, windowsOf,
} from "./files.js";
import { permanent } from "./memory.js";
import { claim, dueAt, keptAnswers, pastOf } from "./past.js";

Object.assign(kinds, moreKinds);

/** @typedef {Awaited<ReturnType<typeof readPlan>>} ReadPlan */
/** @typedef {{state: string, epsilon: number, id?: string, row?: string, due?: number, tries?: number, shared?: number, reason?: string}} Report */

const DAY = 86_400;
/** How often a report is split into shares at most: anew if a leader has another key by now. */
const MAX_SHARED = 3;
const MAX_REPLY = 65_536;

/**
 * @typedef {object} Place
 * @property {string} tool
 * @property {string} home
 * @property {string} folder of the agreement
 * @property {import("./files.js").Environ} environ
 * @property {() => number} now in seconds since 1970
 */

/**
 * Read the plan of an agreement, and the largest local epsilon that is agreed to. A plan that can
 * never be answered is an error.
 *
 * @param {string} text
 * @param {string} limit
 * @returns {Promise<{read: ReadPlan, most: number}>}
 */
export const readTerms = async (text, limit) => {
  let document;
  try {
    ({ id: document, ...document } = JSON.parse(text));
  } catch {
    throw new ShoalError("the plan is not JSON.");
  }
  if (limit !== "" && !(+limit > 0 && +limit < Infinity))
    throw new ShoalError(`the limit must be a number above 0, got ${limit}.`);
  const id = hex(await sha256(canonical(document)));
  const read = await readPlan(text, id, limit === "" ? undefined : +limit);
  const [plan] = read;
  if (!plan.window) throw new ShoalError("telemetry needs a plan with a window.");
  const { most: reports } = pastOf(read[4]);
  if (limit !== "" && !plan.memory && reports < Infinity && reports * plan.localEpsilon > +limit * (1 + 2 ** -50))
    throw new ShoalError(
      `the ${reports} reports of a device reveal a local epsilon of ${(reports * plan.localEpsilon).toFixed(4)}, above the limit of ${limit}.`,
    );
  if (plan.parties?.relay)
    throw new ShoalError("telemetry in Node.js sends nothing to a relay; use a plan with a collector, or with a leader and a helper.");
  if (plan.parties?.one_operator)
    throw new ShoalError("one operator runs the plan's leader and helper, and can put every report together.");
  // Without a limit each report is within the local promise, and nobody limits their sum.
  return { read, most: limit === "" ? Infinity : +limit * (1 + 2 ** -50) };
};

/** @param {Place} place */
export const work = async (place) => {
  const [, agreement] = storedAgreement(place.folder);
  const permitted = () => !whyOff(place.tool, place.environ) && readChoice(place.home, agreement) == "yes";
  if (!permitted()) return;
  const { plan: text, to, limit } = readAgreement(agreement);
  const { read, most } = await readTerms(text, limit);
  const length = /** @type {number} */ (read[0].window);
  await (pastOf(read[4]).about ? reportPast : report)(place, read, permitted);
  const waits = [(Math.floor(place.now() / length) + 1) * length];
  for (const window of windowsOf(place.folder, "report."))
    waits.push(await send(place, read, most, window, to, permitted));
  storeFile(place.folder, "due", `${Math.ceil(Math.min(...waits)) + 1} ${Math.floor(place.now())}`);
};

/**
 * @param {Place} place
 * @param {ReadPlan} read
 * @param {() => boolean} permitted
 */
const report = async (place, read, permitted) => {
  const { folder } = place;
  const length = /** @type {number} */ (read[0].window);
  const window = Math.floor(place.now() / length);
  for (const taken of windowsOf(folder, "taken."))
    if (existsSync(join(folder, `report.${taken}`))) rmSync(join(folder, `taken.${taken}`), { force: true });
  const quiet = +(readText(join(place.home, "quiet")) ?? 0) - place.now();
  if (existsSync(join(folder, `report.${window}`)) || (quiet > 0 && quiet <= length)) return;
  const events = take(folder, window);
  if (events === undefined) return;
  await make(place, read, window, events, {}, permitted);
  rmSync(join(folder, `taken.${window}`), { force: true });
};

/**
 * Make a window's report of events and of answers that the device keeps; false, and a note, if there
 * is none.
 *
 * @type {(place: Place, read: ReadPlan, window: number, events: string, kept: Record<string, any>,
 *   permitted: () => boolean) => Promise<boolean>}
 */
const make = async (place, read, window, events, kept, permitted) => {
  const { folder } = place;
  try {
    const questions = [...read[4].values()].map(([question]) => question);
    const row = await makeRow(place, read, merge({ name: "", questions }, events, kept));
    // With memory any number of reports of the same answer cost what one does.
    const epsilon = read[0].memory ? 0 : read[0].localEpsilon;
    /** @type {Report} */
    const made = { state: "new", epsilon, id: randomBytes(16).toString("hex"), row: hex(row), due: 0 };
    const isMine = createFile(folder, `report.${window}`, JSON.stringify(made));
    if (isMine && !permitted()) rmSync(join(folder, `report.${window}`), { force: true });
    rmSync(join(folder, "note"), { force: true });
    return true;
  } catch (error) {
    if (!(error instanceof ShoalError)) throw error;
    storeFile(folder, "note", error.message);
    return false;
  }
};

/**
 * Make the report that is due about the time since the person's yes, if there is one.
 *
 * @param {Place} place
 * @param {ReadPlan} read
 * @param {() => boolean} permitted
 */
const reportPast = async (place, read, permitted) => {
  const { home, folder } = place;
  const [plan, planBytes, , , blocks] = read;
  const length = /** @type {number} */ (plan.window);
  const { name } = plan.survey;
  const due = dueAt(home, name, blocks, length, place.now());
  const quiet = +(readText(join(home, "quiet")) ?? 0) - place.now();
  if (!due || (quiet > 0 && quiet <= length)) return;
  const { number, began, last, window, isOver } = due;
  const files = windowsOf(folder, "events.");
  const isMine = number !== undefined && claim(home, name, number, hex(planBytes), window);
  if (isMine && !existsSync(join(folder, `report.${window}`))) {
    const windows = files.filter((one) => one >= began && one <= last);
    const events = windows.map((one) => readText(join(folder, `events.${one}`)) ?? "").join("");
    const kept = keptAnswers(home, blocks, windows, began, window);
    const isMade = await make(place, read, window, events, kept, permitted);
    // An arm that is drawn later is not about these windows.
    if (!isMade && isOver) claim(home, name, number + 1, hex(planBytes), window);
  }
  if (isOver) for (const one of files) rmSync(join(folder, `events.${one}`), { force: true });
};

/** The local epsilon of all reports that were made, of all plans. */
export const costs = (/** @type {string} */ home) =>
  agreements(home)
    .flatMap((folder) => windowsOf(folder, "report.").map((window) => join(folder, `report.${window}`)))
    .reduce((sum, file) => sum + JSON.parse(readText(file) ?? '{"epsilon": 0}').epsilon, 0);

/** The events that become this window's report; those before them are dropped. */
const take = (/** @type {string} */ folder, /** @type {number} */ window) => {
  const mine = join(folder, `taken.${window}`);
  const past = windowsOf(folder, "events.").filter((one) => one < window);
  const rename = (/** @type {string} */ name) => {
    try {
      renameSync(join(folder, name), mine);
    } catch (error) {
      if (/** @type {any} */ (error).code != "ENOENT") throw error; // another process was faster
    }
  };
  const last = past.pop();
  if (last !== undefined) rename(`events.${last}`);
  for (const taken of windowsOf(folder, "taken."))
    if (taken != window)
      if (existsSync(mine)) rmSync(join(folder, `taken.${taken}`), { force: true });
      else rename(`taken.${taken}`);
  for (const older of past) rmSync(join(folder, `events.${older}`), { force: true });
  return readText(mine);
};

/** Cohort and flipped bits. @type {(place: Place, read: ReadPlan, answers: Record<string, any>) => Promise<Uint8Array>} */
const makeRow = async ({ home }, [plan, , q1, q2, blocks, bits], answers) => {
  const cohort = plan.cohorts ? below(plan.cohorts) : 0;
  const derived = plan.memory && permanent(home, plan, blocks);
  const rounding = (/** @type {number} */ start) =>
    derived ? derived(Buffer.from(`rounding ${start}`), 8) : draw(8);
  let vector = await encode(plan.survey, [blocks, bits], answers, cohort, rounding);
  if (derived) vector = randomize(vector, bits, q1, derived(vector, fairBytes(bits, q1)));
  vector = randomize(vector, bits, q2);
  const row = Buffer.concat([little(cohort, plan.cohorts ? 2 : 0), vector]);
  return plan.parties ? dap.kept(plan, vector, row) : row;
};

/**
 * Try a report that is due, once, and say when to look again. The time of the next attempt is stored
 * before, so that a killed process does not hurry.
 *
 * @type {(place: Place, read: ReadPlan, most: number, window: number, to: string,
 *   permitted: () => boolean) => Promise<number>}
 */
const send = async (place, read, most, window, to, permitted) => {
  const name = `report.${window}`;
  /** @type {Report} */
  const one = JSON.parse(readText(join(place.folder, name)) ?? '{"state": "sent"}');
  const length = /** @type {number} */ (read[0].window);
  const now = place.now();
  const store = () => storeFile(place.folder, name, JSON.stringify(one));
  const settle = (/** @type {string} */ state, epsilon = one.epsilon) => {
    storeFile(place.folder, name, JSON.stringify({ state, epsilon }));
    for (let number = 0; number < MAX_SHARED; number++)
      rmSync(join(place.folder, `shares.${window}.${number}`), { force: true });
    return Infinity;
  };
  if (one.state == "new") {
    // Looked at after it was made, so that two processes cannot both take what is left.
    if (one.epsilon && costs(place.home) > most) {
      const sentence = `all reports together would reveal a local epsilon above ${most.toPrecision(4)}.`;
      storeFile(place.folder, "note", sentence);
      return settle("refused", 0);
    }
    one.state = "waiting";
  }
  if (one.state != "waiting") return Infinity;
  // The collector takes this window and the one before.
  if (now >= (window + 2) * length) return settle("expired");
  const { due = 0, tries = 0 } = one;
  if (due > now && due <= now + 2 * DAY) return due; // further ahead: set by a wrong clock
  one.due = now + 1 + below(Math.min(30 * 2 ** Math.min(tries, 10), DAY / 4));
  one.tries = tries + 1;
  store();
  if (!permitted()) return one.due;
  const { status, wait, reason } = await upload(place, read, window, to, one, permitted).catch((error) => ({
    status: 0,
    wait: 0,
    reason: error instanceof ShoalError ? error.message : NOTHING,
  }));
  if (status == 202) return settle("sent");
  if (status == 412 && (one.shared = (one.shared ?? 0) + 1) >= MAX_SHARED) return settle("expired");
  one.due += wait;
  one.reason = reason;
  store();
  return one.due;
};

/**
 * Send a report, log it, and return its status, how long to wait, and why it waits.
 *
 * @type {(place: Place, read: ReadPlan, window: number, to: string, one: Report,
 *   permitted: () => boolean) => Promise<{status: number, wait: number, reason: string}>}
 */
const upload = async (place, read, window, to, one, permitted) => {
  const [{ parties }, planBytes] = read;
  const plain = `${to}/v1/plans/${hex(planBytes)}`;
  const [address, type] = parties ? dap.upload(plain, planBytes) : [`${plain}/reports`, "vnd.shoal.reports"];
  const body = parties
    ? await shares(place, read, window, one)
    : packReport(planBytes, unhex(one.id), window, unhex(one.row));
  if ("status" in body) return outcome(body.status, body);
  if (!permitted()) return outcome(0);
  const reply = await request(address, body, type).catch(() => undefined);
  const status = reply ? await (parties ? dap.status(reply) : reply.status) : 0;
  const logged = { at: Math.floor(place.now()), to: address, body: hex(body), status };
  appendFileSync(join(place.home, "log.jsonl"), JSON.stringify(logged) + "\n", { mode: 0o600 });
  return outcome(status, reply);
};

const NOTHING = "no response";

/** @type {(status: number, reply?: Response) => {status: number, wait: number, reason: string}} */
const outcome = (status, reply) => ({
  status,
  wait: Math.min(Math.max(Number(reply?.headers.get("Retry-After")) || 0, 0), DAY),
  reason: status ? `the collector responded ${status}` : NOTHING,
});

/**
 * The encrypted shares of a report: the same bytes every time, whichever process stored them first.
 * A response that is no key is returned itself.
 *
 * @type {(place: Place, read: ReadPlan, window: number, one: Report) => Promise<Uint8Array<ArrayBuffer> | Response>}
 */
const shares = async ({ folder }, [plan, planBytes, , , , bits], window, one) => {
  const name = `shares.${window}.${one.shared ?? 0}`;
  if (!existsSync(join(folder, name))) {
    const report = { id: unhex(one.id), window, row: unhex(one.row) };
    const made = await dap.pack(request, async () => "", "", planBytes, report, plan, bits);
    if ("status" in made) return made;
    createFile(folder, name, hex(made));
  }
  return unhex(readText(join(folder, name)));
};

/**
 * One request, with no header that names the program.
 *
 * @type {import("../client.js").Request}
 */
const request = (address, body, type) =>
  new Promise((resolve, reject) => {
    const headers = body ? { "Content-Type": `application/${type}`, "Content-Length": body.length } : {};
    const options = { method: body ? "POST" : "GET", headers, signal: AbortSignal.timeout(1e4) };
    const { request } = address.startsWith("https:") ? https : http;
    request(address, options, async (reply) => {
      try {
        /** @type {Buffer[]} */
        const parts = [];
        for await (const part of reply)
          if (parts.reduce((sum, { length }) => sum + length, part.length) <= MAX_REPLY) parts.push(part);
          else throw new Error("the response is too large");
        const known = ["content-type", "retry-after"].flatMap((header) =>
          header in reply.headers ? [[header, `${reply.headers[header]}`]] : [],
        );
        const content = Buffer.concat(parts);
        resolve(
          new Response(content.length ? content : null, {
            status: reply.statusCode,
            headers: /** @type {[string, string][]} */ (known),
          }),
        );
      } catch (error) {
        reject(error);
      }
    })
      .on("error", reject)
      .end(body);
  });

/** @param {string | undefined} text */
const unhex = (text) => Uint8Array.from(Buffer.from(text ?? "", "hex"));

/**
 * One answer made of a window's events: options of flags add up; of a choice, or a text, the first
 * counts; of numbers the largest, and counts are added; a yes stays a yes; of steps the furthest. Lines
 * that cannot be read, such as one that a crash cut off, are skipped. `kept` is what the device answers
 * itself.
 *
 * @param {import("../survey.js").Survey} survey
 * @param {string} events
 * @param {Record<string, any>} [kept]
 * @returns {Record<string, any>}
 */
export const merge = ({ questions }, events, kept = {}) => {
  /** @type {Map<string, any[]>} */
  const given = new Map(questions.map(({ name }) => [name, []]));
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const line of events.split("\n")) {
    let event;
    try {
      event = JSON.parse(line);
    } catch {
      continue;
    }
    for (const [name, value] of Object.entries(event.record ?? {})) given.get(name)?.push(value);
    for (const [name, value] of Object.entries(event.count ?? {})) sums.set(name, (sums.get(name) ?? 0) + value);
  }
  for (const [name, value] of Object.entries(kept)) given.set(name, value === null ? [] : [value]);
  return Object.fromEntries(
    questions
      .filter(({ kind }) => kind != "cross")
      .map((question) => [
        question.name,
        merged(question, given.get(question.name) ?? [], sums.get(question.name) ?? 0),
      ]),
  );
};

/** @type {(question: import("../survey.js").Question, given: any[], sum: number) => any} */
const merged = ({ kind, name, missing, at_most: atMost, fold, past, options: steps = [] }, given, sum) => {
  if (kind == "flags") {
    const options = given.flatMap((one) => (typeof one == "string" ? one.split(";") : one)).map(String);
    /** @type {Map<string, string>} */
    const first = new Map();
    for (const option of options) {
      const word = (fold ? folded : strip)(option);
      if (!first.has(word)) first.set(word, option);
    }
    return [...first.values()].slice(0, atMost);
  }
  if (kind == "number") {
    if (!given.length && !sum && missing) return null;
    return (given.length ? Math.max(...given.map(Number)) : 0) + sum;
  }
  if (kind == "yes/no") {
    if (!given.length) return missing ? null : "no";
    return given.some((one) => /^(yes|true|1)$/i.test(strip(`${one}`))) ? "yes" : "no";
  }
  if (kind == "text") return given[0] ?? "";
  if (past == "arm" && !given.length && !missing)
    throw new ShoalError(`no arm of question ${name} was drawn: the tool did not call arm().`);
  if (past == "funnel" && given.length)
    return steps[Math.max(...given.map((step) => steps.indexOf(strip(`${step}`))))] ?? null;
  if (!given.length && !missing) throw new ShoalError(`nothing was recorded for question ${name} in this window.`);
  return given[0] ?? null;
};

const MAX_SECONDS = 120;

// Run as a process: node worker.js TOOL HOME NAME
if (process.argv[1] == fileURLToPath(import.meta.url)) {
  const [tool, home, name] = process.argv.slice(2);
  setTimeout(() => process.exit(1), 1e3 * MAX_SECONDS).unref();
  const place = { tool, home, folder: join(home, name), environ: process.env, now: () => Date.now() / 1e3 };
  await work(place).catch((error) => storeFile(place.folder, "note", error.message));
}
