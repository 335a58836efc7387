/**
 * The files of a tool's telemetry, in a folder of the person.
 *
 * Consent has the format of all Shoal clients: CRC/agreed holds the window and the agreement byte for
 * byte, and `off` says no to every agreement. Recorded events are lines in CRC/events.WINDOW. A report
 * is a file, CRC/report.WINDOW, that is made complete or not at all, and by one process only: that is
 * why a window has one report, however many processes run or are killed.
 */

import {
  appendFileSync, closeSync, existsSync, fsyncSync, linkSync, mkdirSync, openSync, readdirSync,
  readFileSync, renameSync, rmSync, statSync, writeSync,
} from "node:fs";
import { homedir } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { crc32 } from "./crc32.js";

const MAX_EVENT_BYTES = 2 ** 20;

/** @typedef {Record<string, string | undefined>} Environ */

/**
 * Where a tool keeps its telemetry; nothing where this user has no home.
 *
 * @param {string} tool
 * @param {Environ} environ
 */
export const stateFolder = (tool, environ) => {
  const { platform } = process;
  let base = environ[platform == "win32" ? "LOCALAPPDATA" : "XDG_STATE_HOME"] ?? "";
  if (platform != "win32" && !isAbsolute(base))
    base = join(environ.HOME ?? homedir(), platform == "darwin" ? "Library/Application Support" : ".local/state");
  return isAbsolute(base) ? join(base, tool, "telemetry") : undefined;
};

/**
 * Whether root would write into another user's folder, who then could not.
 *
 * @param {string} folder
 */
export const isOthers = (folder) => {
  let above = folder;
  while (!existsSync(above)) above = dirname(above);
  return process.geteuid?.() == 0 && statSync(above).uid != 0;
};

/**
 * What a person says yes to.
 *
 * @param {string} plan
 * @param {string} to
 * @param {string} limit
 */
export const agreementText = (plan, to, limit) =>
  `What was agreed to, and nothing else: a plan, an address, a limit.\nto: ${to}\nlimit: ${limit}\nkey: \n\n${plan}`;

/** @param {string} text */
export const readAgreement = (text) => {
  const end = text.indexOf("\n\n");
  const field = (/** @type {string} */ name) =>
    RegExp(`^${name}: (.*)$`, "m").exec(text.slice(0, end))?.[1] ?? "";
  return { plan: text.slice(end + 2), to: field("to"), limit: field("limit") };
};

/** @type {(home: string, agreement: string) => string} */
export const agreementFolder = (home, agreement) =>
  join(home, crc32(Buffer.from(agreement)).toString(16).padStart(8, "0"));

/** @type {(path: string) => string | undefined} */
export const readText = (path) => {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (!["ENOENT", "ENOTDIR"].includes(/** @type {any} */ (error).code)) throw error;
  }
};

/**
 * The length of windows in seconds and the agreement in a folder; 0 without one.
 *
 * @type {(folder: string) => [number, string]}
 */
export const storedAgreement = (folder) => {
  const text = readText(join(folder, "agreed")) ?? "";
  const end = text.indexOf("\n");
  return [/^\d+$/.test(text.slice(0, end)) ? +text.slice(0, end) : 0, text.slice(end + 1)];
};

/** @type {(home: string, agreement: string) => "yes" | "no" | "not asked" | "changed"} */
export const readChoice = (home, agreement) => {
  if (existsSync(join(home, "off"))) return "no";
  const [window, stored] = storedAgreement(agreementFolder(home, agreement));
  if (window && stored == agreement) return "yes";
  return agreements(home).length ? "changed" : "not asked";
};

/** The folders of everything that was agreed to. */
export const agreements = (/** @type {string} */ home) =>
  names(home).map((name) => join(home, name)).filter((folder) => existsSync(join(folder, "agreed")));

/** The names in a folder; none without it. */
export const names = (/** @type {string} */ folder) => (existsSync(folder) ? readdirSync(folder) : []);

/**
 * Write a file whole and durably under a name of its own, and return that.
 *
 * @type {(folder: string, name: string, content: string | Uint8Array) => string}
 */
const scratch = (folder, name, content) => {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const path = join(folder, `.${name}.${process.pid}`);
  const file = openSync(path, "w", 0o600);
  try {
    writeSync(file, /** @type {any} */ (content));
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  return path;
};

/** Replace a file atomically. @type {(folder: string, name: string, content: string | Uint8Array) => void} */
export const storeFile = (folder, name, content) =>
  renameSync(scratch(folder, name, content), join(folder, name));

/**
 * Make a file that must not exist, whole; false if another process was faster.
 *
 * @type {(folder: string, name: string, content: string) => boolean}
 */
export const createFile = (folder, name, content) => {
  const path = scratch(folder, name, content);
  try {
    linkSync(path, join(folder, name));
    return true;
  } catch (error) {
    if (/** @type {any} */ (error).code != "EEXIST") throw error;
    return false;
  } finally {
    rmSync(path, { force: true });
  }
};

/** @type {(home: string, agreement: string, window: number) => void} */
export const sayYes = (home, agreement, window) => {
  storeFile(agreementFolder(home, agreement), "agreed", `${window}\n${agreement}`);
  rmSync(join(home, "off"), { force: true });
};

/** @type {(home: string) => void} */
export const sayNo = (home) => storeFile(home, "off", "Telemetry is off.\n");

/**
 * Write an event into its window's file in one piece, unless it is there already.
 *
 * @type {(folder: string, window: number, event: object) => void}
 */
export const appendEvent = (folder, window, event) => {
  const path = join(folder, `events.${window}`);
  const line = JSON.stringify(event) + "\n";
  const known = readText(path) ?? "";
  if (known.length + line.length > MAX_EVENT_BYTES)
    throw new Error("this window has too many events; the last was dropped");
  if ("count" in event || !("\n" + known).includes("\n" + line))
    appendFileSync(path, line, { mode: 0o600 });
};

/**
 * The windows of files with a prefix, rising.
 *
 * @type {(folder: string, prefix: string) => number[]}
 */
export const windowsOf = (folder, prefix) =>
  names(folder)
    .filter((name) => name.startsWith(prefix) && /^\d+$/.test(name.slice(prefix.length)))
    .map((name) => +name.slice(prefix.length))
    .sort((a, b) => a - b);
