/** The lines of a tool: `openTelemetry`, `record`, `flush`. Nothing here opens a connection. */

import { spawn } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

import { encode } from "../answers.js";
import { ShoalError } from "../bytes.js";
import { ask, details, wordsFor } from "./consent.js";
import { canBeAsked, whyOff } from "./environment.js";
import {
  agreementFolder, agreements, agreementText, appendEvent, isOthers, names, readChoice, readText, sayNo,
  sayYes, stateFolder, storeFile, windowsOf,
} from "./files.js";
import { begin, keptArm, pastOf } from "./past.js";
import { costs, readTerms } from "./worker.js";

/**
 * @typedef {object} Options
 * @property {string} tool the tool's name: of its folder, its messages and the variable MYTOOL_TELEMETRY
 * @property {string | URL | object} plan the plan that the tool ships: a file, or its document
 * @property {string} to the collector: `https://host[:port][/path]`; or the plan's leader
 * @property {number | string} [limit] the largest local epsilon that the device reveals, of one report,
 *   and of all reports of a plan without memory together; a plan whose promise is local needs none
 * @property {string} [why] one sentence of yours: what you need the numbers for
 * @property {boolean} [ask] whether `flush` may ask at a terminal
 * @property {Record<string, string | undefined>} [environ] for tests, as is what follows
 * @property {string} [folder]
 * @property {() => number} [now] in seconds since 1970
 */

const WORKER = fileURLToPath(new URL("./worker.js", import.meta.url));
const PAUSE = 60;

/**
 * Read the plan. Fails if nothing could ever be sent: a plan that this client does not know, a limit
 * below what one report reveals, an address that is not https. Conditions of the user's machine are no
 * error.
 *
 * @param {Options} options
 */
export const openTelemetry = async ({
  tool, plan, to, limit = "", why = "", ask: mayAsk = true, environ = process.env, folder, now = () => Date.now() / 1e3,
}) => {
  if (!tool || /[/\\]/.test(tool)) throw new ShoalError(`tool must be the name of the tool, got ${tool}.`);
  checkAddress(to);
  const text =
    typeof plan == "string" || plan instanceof URL ? readFileSync(plan, "utf8") : JSON.stringify(plan);
  const { read } = await readTerms(text, `${limit}`);
  const [{ parties }] = read;
  if (parties && to != parties.leader)
    throw new ShoalError(`the plan's reports go to its leader: to must be ${parties.leader}, got ${to}.`);
  return new Telemetry({ tool, to, limit: `${limit}`, why, mayAsk, environ, now }, text, read, folder ?? stateFolder(tool, environ));
};

/** @param {string} to */
const checkAddress = (to) => {
  const bad = new ShoalError(`to must be https://host[:port][/path], got ${to}.`);
  let address;
  try {
    address = new URL(to);
  } catch {
    throw bad;
  }
  const isHere = ["localhost", "127.0.0.1", "[::1]"].includes(address.hostname);
  const isSafe = address.protocol == "https:" || (address.protocol == "http:" && isHere);
  if (!isSafe || address.search || to.endsWith("/")) throw bad;
};

const SAID = {
  yes: "You said yes.",
  no: "You said no.",
  "not asked": "You have not been asked yet.",
  changed: "You said yes to other terms, and have not been asked again.",
};

/** Off until a person says yes; then one randomized report per window of the plan. */
export class Telemetry {
  /** Why the last call failed. @type {string | undefined} */
  #problem;
  /** Events in memory, until the person says yes. @type {object[]} */
  #held = [];
  /** @type {any} */
  #options;
  #read;
  #agreement;
  #home;

  /**
   * @param {any} options
   * @param {string} text of the plan
   * @param {import("./worker.js").ReadPlan} read
   * @param {string | undefined} home
   */
  constructor(options, text, read, home) {
    this.#options = options;
    this.#read = read;
    this.#home = home;
    this.#agreement = agreementText(text, options.to, options.limit);
  }

  get #folder() {
    return agreementFolder(/** @type {string} */ (this.#home), this.#agreement);
  }

  get #window() {
    return /** @type {number} */ (this.#read[0].window);
  }

  get choice() {
    const { tool, environ } = this.#options;
    if (!this.#home || isOthers(this.#home) || whyOff(tool, environ)) return "no";
    return readChoice(this.#home, this.#agreement);
  }

  /** Why the last call failed, or why the last report was not made. */
  get problem() {
    return this.#problem ?? (this.#home && readText(join(this.#folder, "note")));
  }

  /**
   * Fails if `record` would drop these answers; for the tests of the tool.
   *
   * @param {Record<string, any>} answers
   */
  async check(answers) {
    const [{ survey }, , , , blocks] = this.#read;
    for (const [name, answer] of Object.entries(answers)) {
      const block = blocks.get(name);
      if (!block || block[3]) throw new ShoalError(`there is no question ${name}.`);
      if (/^(arm|age|once)$/.test(block[0].past ?? ""))
        throw new ShoalError(`question ${name}: the device answers it itself; leave it out.`);
      await encode(survey, [new Map([[name, block]]), block[1] + block[2]], { [name]: answer }, 0);
    }
  }

  /**
   * Record an event: a value, or several options, for each of some questions. The events of one window
   * become one answer. Options of flags add up; of a choice, or a text, the first counts; of numbers
   * the largest; a yes stays a yes; of the steps of a funnel the furthest.
   *
   * @param {Record<string, any>} answers
   */
  async record(answers) {
    try {
      await this.check(answers);
      this.#note({ record: answers });
    } catch (error) {
      this.#problem = /** @type {Error} */ (error).message;
    }
  }

  /**
   * Add to the answers of number questions: the events of one window are summed.
   *
   * @param {Record<string, number>} amounts
   */
  async count(amounts) {
    try {
      for (const [name, amount] of Object.entries(amounts))
        if (this.#read[4].get(name)?.[0].kind != "number" || !Number.isFinite(amount))
          throw new ShoalError(`there is no number question ${name}, or ${amount} is no number.`);
      this.#note({ count: amounts });
    } catch (error) {
      this.#problem = /** @type {Error} */ (error).message;
    }
  }

  /**
   * This device's arm of an experiment: drawn once by the operating system's random bytes, kept, and
   * part of its report. Without the person's yes it is the first arm, control, and nothing is stored.
   * Fails if the plan has no such arm question.
   *
   * @param {string} name
   */
  arm(name) {
    const question = this.#read[4].get(name)?.[0];
    if (question?.past != "arm") throw new ShoalError(`the plan has no arm question ${name}.`);
    try {
      if (this.choice == "yes") return keptArm(/** @type {string} */ (this.#home), question);
    } catch (error) {
      this.#problem = /** @type {Error} */ (error).message;
    }
    return /** @type {string[]} */ (question.options)[0];
  }

  #note(/** @type {object} */ event) {
    const { choice } = this;
    if (choice == "yes") this.#write(event);
    else if (choice != "no") this.#held.push(event);
  }

  #write(/** @type {object} */ event) {
    appendEvent(this.#folder, Math.floor(this.#options.now() / this.#window), event);
  }

  /** Ask the person if nobody did, and start the detached process if it is due; it is not waited for. */
  async flush() {
    try {
      const { choice } = this;
      if ((choice == "not asked" || choice == "changed") && this.#options.mayAsk && canBeAsked()) {
        if (await ask(this.#options, this.#read, choice == "changed")) this.turnOn();
        else sayNo(/** @type {string} */ (this.#home));
      }
      if (this.choice == "yes") this.#startWorker();
    } catch (error) {
      this.#problem = /** @type {Error} */ (error).message;
    }
  }

  /** Keep the person's yes. */
  turnOn() {
    const home = /** @type {string} */ (this.#home);
    sayYes(home, this.#agreement, this.#window);
    const now = Math.floor(this.#options.now());
    const ends = (Math.floor(now / this.#window) + 1) * this.#window;
    const { about, ages } = pastOf(this.#read[4]);
    const quiet = +(readText(join(home, "quiet")) ?? 0);
    if (about) begin(home, this.#read[0].survey.name, now < quiet && quiet <= ends ? quiet : now);
    // Ages are reported in the period itself; else nothing is due before the window is over.
    storeFile(this.#folder, "due", `${ages ? now : ends} ${now}`);
    this.#held.forEach((event) => this.#write(event));
    this.#held = [];
  }

  #startWorker() {
    const now = Math.floor(this.#options.now());
    const [due, written] = (readText(join(this.#folder, "due")) ?? "0 0").split(" ").map(Number);
    if (written <= now && now < due) return; // a clock that was set back proves nothing
    // Before the start, so that a worker that fails at once is not started by every run.
    storeFile(this.#folder, "due", `${now + PAUSE} ${now}`);
    const home = /** @type {string} */ (this.#home);
    const words = [WORKER, this.#options.tool, home, basename(this.#folder)];
    spawn(process.execPath, words, { cwd: home, detached: true, stdio: "ignore", env: process.env }).unref();
  }

  /**
   * Run `mytool telemetry status|on|off|show|delete`, and return what to print.
   *
   * @param {string} name
   */
  async command(name) {
    if (!this.#home) throw new ShoalError("there is no place for telemetry: this user has no home folder.");
    /** @type {Record<string, (home: string) => string>} */
    const commands = { status: this.#status, on: this.#on, off: this.#off, show: this.#show, delete: this.#delete };
    if (!Object.hasOwn(commands, name))
      throw new ShoalError(`telemetry needs one of ${Object.keys(commands).join(", ")}.`);
    return commands[name].call(this, this.#home);
  }

  #status(/** @type {string} */ home) {
    const { tool, environ, limit } = this.#options;
    const why = whyOff(tool, environ);
    const choice = readChoice(home, this.#agreement);
    const states = agreements(home).flatMap((folder) =>
      windowsOf(folder, "report.").map((window) => JSON.parse(readText(join(folder, `report.${window}`)) ?? "{}").state),
    );
    const count = (/** @type {string} */ state) => states.filter((one) => one == state).length;
    return [
      `Telemetry of ${tool} is ${!why && choice == "yes" ? "on" : "off"}${why ? `: ${why}` : ""}. ${SAID[choice]}`,
      ...details(this.#options, this.#read, wordsFor(this.#options.environ)),
      `Reports: ${count("sent")} sent, ${count("waiting") + count("new")} waiting, ${count("expired")} expired. All that` +
        ` were made reveal at most a local epsilon of ${(costs(home) + 5e-5).toFixed(4)}${limit && ` (limit ${limit})`}.`,
      `Files: ${home}`,
      ...(this.problem ? [`Last problem: ${this.problem}`] : []),
    ].join("\n");
  }

  #on() {
    const { tool, environ } = this.#options;
    const why = whyOff(tool, environ);
    if (why) throw new ShoalError(`telemetry stays off: ${why}.`);
    this.turnOn();
    return [`Telemetry of ${tool} is on.`, ...details(this.#options, this.#read, wordsFor(this.#options.environ))].join("\n");
  }

  /** Keep a no, and delete events and unsent reports. That a window's report was made is kept. */
  #off(/** @type {string} */ home) {
    sayNo(home);
    for (const folder of agreements(home)) {
      for (const name of names(folder))
        if (/^(events|taken|shares)\./.test(name)) rmSync(join(folder, name), { force: true });
      for (const window of windowsOf(folder, "report.")) {
        const { state, epsilon } = JSON.parse(readText(join(folder, `report.${window}`)) ?? "{}");
        if (state == "waiting" || state == "new")
          storeFile(folder, `report.${window}`, JSON.stringify({ state: "expired", epsilon }));
      }
    }
    return `Telemetry of ${this.#options.tool} is off. Recorded and unsent data were deleted.`;
  }

  #show(/** @type {string} */ home) {
    const lines = (readText(join(home, "log.jsonl")) ?? "").split("\n").filter(Boolean);
    if (!lines.length) return "Nothing has left this machine.";
    return lines
      .map((line, place) => {
        const { at, to, body, status } = JSON.parse(line);
        const when = new Date(1e3 * at).toISOString().slice(0, 16).replace("T", " ");
        const response = status ? `the response was ${status}` : "no response came";
        return `${place + 1}. ${when} UTC, to ${to}; ${response}.\n   ${body.length / 2} bytes: ${body}`;
      })
      .join("\n");
  }

  /** Forget everything but the no, and until when no report may be made: this window may have one. */
  #delete(/** @type {string} */ home) {
    const window = Math.max(0, ...agreements(home).map((folder) => +(readText(join(folder, "agreed")) ?? "0").split("\n")[0]));
    this.#off(home);
    if (window) storeFile(home, "quiet", `${(Math.floor(this.#options.now() / window) + 1) * window}`);
    for (const name of names(home))
      if (name != "off" && name != "quiet") rmSync(join(home, name), { recursive: true, force: true });
    return (
      `Everything that ${this.#options.tool} kept for telemetry was deleted, and it is off. Reports already sent` +
      " cannot be deleted: they have no id by which they could be found."
    );
  }
}
