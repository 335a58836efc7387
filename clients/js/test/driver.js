/**
 * Lets another program use the client: `encode` reads a JSON document with a survey, an answer and
 * a cohort on each line, and writes the bits, the differing bits, the cohorts and the row, or null;
 * `randomize BITS NUMERATOR DIGITS` reads packed rows and writes them randomized,
 * with `zeros` behind it as if the system gave nothing but zeros; `encrypt` reads a
 * JSON list of plans, keys and rows, and writes what would be sent to a relay; `share` reads a plan,
 * a window, a row and the keys of leader and helper on each line, and writes the uploads; `people` reads the
 * options of a client and a list of answers, lets a client of its own send each, and writes the
 * bits that each had to send and what became of it; `speed ROUNDS` reads a survey with a plan's q
 * and a key, and writes how many reports a second are made and encrypted.
 */

import { once } from "node:events";
import { createInterface } from "node:readline";

import { encode } from "../src/answers.js";
import { decoded, hex, ShoalError } from "../src/bytes.js";
import { draw, randomize } from "../src/random.js";
import { moreKinds } from "../kinds.js";
import { kinds, layout } from "../src/survey.js";
import { shoal } from "../shoal.js";
import { dap, packShares } from "../src/dap.js";
import { packEncrypted, relay } from "../src/relay.js";
import { readPlan } from "../src/plan.js";
import { memoryStore, unhex } from "./help.js";

Object.assign(kinds, moreKinds);

const [mode, ...numbers] = process.argv.slice(2);

async function encodeLines() {
  const out = [];
  for await (const line of createInterface({ input: process.stdin })) {
    const { survey, answers, cohort } = JSON.parse(line);
    const places = layout(survey);
    const row = await encode(survey, places, answers, cohort ?? 0).catch((error) => {
      if (!(error instanceof ShoalError)) throw error;
    });
    out.push(JSON.stringify([places[1], places[2], places[3], row ? hex(row) : null]));
  }
  process.stdout.write(out.join("\n") + "\n");
}

async function everything() {
  const parts = [];
  for await (const part of process.stdin) parts.push(part);
  return Buffer.concat(parts);
}

async function randomizeRows([bits, numerator, digits]) {
  const size = Math.ceil(bits / 8);
  const rows = Uint8Array.from(await everything());
  for (let at = 0; at < rows.length; at += size)
    rows.set(randomize(rows.slice(at, at + size), bits, [numerator, digits]), at);
  if (!process.stdout.write(rows)) await once(process.stdout, "drain");
}

async function encryptReports() {
  const encrypted = [];
  for (const { plan, window, key, row } of JSON.parse((await everything()).toString()))
    encrypted.push(hex(await packEncrypted(unhex(plan), draw(16), window, decoded(key), unhex(row))));
  process.stdout.write(JSON.stringify(encrypted));
}

async function shareReports() {
  for await (const line of createInterface({ input: process.stdin })) {
    const { plan: document, id, window, row, leader, helper } = JSON.parse(line);
    const [plan, planId, , , , bits] = await readPlan(JSON.stringify(document), id, Infinity);
    const report = { id: draw(16), window, row: dap.kept(plan, unhex(row), unhex(row)) };
    const made = await packShares(plan, planId, bits, report, [unhex(leader), unhex(helper)]);
    process.stdout.write(hex(made) + "\n");
  }
}

/** The places of the set bits of a report that waits in a store. */
const placesOf = ({ row }) =>
  Array.from({ length: 8 * row.length }, (_, place) => place).filter(
    (place) => (row[place >> 3] >> (place & 7)) & 1,
  );

async function bePeople() {
  const { options, answers } = JSON.parse((await everything()).toString());
  const told = [];
  for (const answer of answers) {
    const store = memoryStore();
    const client = shoal({ ...options, ...(options.dap ? { dap } : { relay }), store });
    await client.answer(answer);
    const { reports } = await store(options.plan, (kept) => kept);
    const places = placesOf(reports[0]);
    const [{ state, reason }] = await client.send();
    told.push([places, state, reason ?? null]);
  }
  process.stdout.write(JSON.stringify(told));
}

async function measureSpeed([rounds]) {
  const { survey, answer, q, key } = JSON.parse((await everything()).toString());
  const places = layout(survey);
  const [, bits] = places;
  const plan = draw(32);
  const timed = async (work) => {
    const start = performance.now();
    for (let round = 0; round < rounds; round++) await work();
    return (1e3 * rounds) / (performance.now() - start);
  };
  const make = async () => randomize(await encode(survey, places, answer, 0), bits, q);
  const encrypted = async () => packEncrypted(plan, draw(16), 0, decoded(key), await make());
  for (const work of [make, encrypted]) await work();
  const speeds = [await timed(make), await timed(encrypted)];
  process.stdout.write(JSON.stringify(speeds));
}

if (numbers.at(-1) == "zeros") crypto.getRandomValues = (bytes) => bytes.fill(0);

const modes = {
  encode: encodeLines,
  randomize: randomizeRows,
  encrypt: encryptReports,
  share: shareReports,
  people: bePeople,
  speed: measureSpeed,
};
await modes[mode](numbers.map(Number));
