/**
 * Lets another program use the client: `encode` reads a JSON document with a survey, an answer and
 * a cohort on each line, and writes the bits, the differing bits, the cohorts and the row, or null;
 * `randomize BITS NUMERATOR DIGITS` reads packed rows and writes them randomized,
 * with `zeros` behind it as if the system gave nothing but zeros; `seal` reads a
 * JSON list of plans, keys and rows, and writes what would be sent to a relay.
 */

import { once } from "node:events";
import { createInterface } from "node:readline";

import { encode } from "../src/answers.js";
import { decoded, hex, join, ShoalError } from "../src/bytes.js";
import { draw, randomize } from "../src/random.js";
import { layout } from "../src/survey.js";
import { packFragments, packSealed, setPositions } from "../src/wire.js";
import { unhex } from "./help.js";

const [mode, ...numbers] = process.argv.slice(2);

async function encodeLines() {
  const out = [];
  for await (const line of createInterface({ input: process.stdin })) {
    const { survey, answers, cohort } = JSON.parse(line);
    const places = layout(survey);
    const row = await encode(survey, places, answers, cohort).catch((error) => {
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

async function sealReports() {
  const sealed = [];
  for (const { plan, window, key, row, messages } of JSON.parse((await everything()).toString())) {
    const contents = messages
      ? packFragments(setPositions(unhex(row), messages), messages)
      : [join(draw(16), unhex(row))];
    sealed.push(hex(await packSealed(unhex(plan), draw(16), window, decoded(key), contents)));
  }
  process.stdout.write(JSON.stringify(sealed));
}

if (numbers.at(-1) == "zeros") crypto.getRandomValues = (bytes) => bytes.fill(0);

const modes = { encode: encodeLines, randomize: randomizeRows, seal: sealReports };
await modes[mode](numbers.map(Number));
