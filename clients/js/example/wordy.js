/**
 * Wordy counts the words of files, and shows what a tool needs for telemetry.
 *
 *     node example/wordy.js count README.md
 *     node example/wordy.js telemetry status
 */

import { readFileSync } from "node:fs";

import { openTelemetry } from "../telemetry.js";

const telemetry = await openTelemetry({
  tool: "wordy",
  plan: new URL("../../../examples/telemetry/plan.json", import.meta.url),
  to: process.env.WORDY_COLLECTOR ?? "https://telemetry.example.org",
  limit: 60,
  why: "We want to know which commands deserve our time.",
  // Only tests move the clock, so that nobody has to wait for a week.
  now: () => Date.now() / 1e3 - 86_400 * Number(process.env.WORDY_DAYS_AGO ?? 0),
});

const [command, ...files] = process.argv.slice(2);
if (command == "telemetry") {
  try {
    console.log(await telemetry.command(files[0]));
  } catch (error) {
    console.error(`wordy: ${error.message}`);
    process.exitCode = 2;
  }
} else if (command == "count" && files.length) {
  await telemetry.record({ command: "count", platform: process.platform });
  await telemetry.count({ runs: 1 });
  const words = files.flatMap((file) => readFileSync(file, "utf8").split(/\s+/).filter(Boolean));
  console.log(words.length);
  await telemetry.flush();
} else {
  console.error("usage: wordy count FILE... | wordy telemetry COMMAND");
  process.exitCode = 2;
}
