/** The secret of permanent flips, which survives edits of words. */

import { createCipheriv, createHash, randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";

import { canonical } from "../bytes.js";
import { encoding, isMoved } from "../survey.js";
import { createFile, names, readText, storeFile } from "./files.js";

/** @typedef {import("../bytes.js").Bytes} Bytes */

/** @param {string | Uint8Array} content */
const sha256 = (content) => createHash("sha256").update(content).digest();

/**
 * A function that derives bytes from an answer and a secret, always the same. Neither the answer nor
 * its permanent vector is stored. Plans that differ only in words, not in which bits an answer sets,
 * share the secret; a word that moved to another bit needs a new one.
 *
 * @param {string} home
 * @param {import("../plan.js").Plan} plan
 * @param {Map<string, import("../survey.js").Block>} blocks
 * @returns {(content: Uint8Array, size: number) => Bytes}
 */
export const permanent = (home, plan, blocks) => {
  const [rules, words] = encoding(plan, blocks);
  const folder = join(home, "memory");
  const prefix = sha256(canonical(rules)).toString("hex").slice(0, 32);
  for (let number = 0; ; number++) {
    const name = `${prefix}.${number}`;
    if (!existsSync(join(folder, name))) {
      const made = { key: randomBytes(32).toString("hex"), words: [words] };
      // If another process was faster, its secret is looked at next.
      if (!createFile(folder, name, JSON.stringify(made))) number--;
      else return derive(made.key);
      continue;
    }
    const kept = JSON.parse(/** @type {string} */ (readText(join(folder, name))));
    const isLast = !names(folder).includes(`${prefix}.${number + 1}`);
    const known = kept.words.some((/** @type {string[][]} */ old) => canonical(old) == canonical(words));
    // With the latest words alone, two edits that move none could together move one.
    const fits = known || (isLast && !kept.words.some((/** @type {string[][]} */ old) => isMoved(old, words)));
    if (!fits) continue;
    if (!known) storeFile(folder, name, JSON.stringify({ ...kept, words: [...kept.words, words] }));
    return derive(kept.key);
  }
};

/** @type {(key: string) => (content: Uint8Array, size: number) => Bytes} */
const derive = (key) => (content, size) =>
  // Where the counter starts follows from the content. That two of them count over the same blocks
  // has a probability below 2^-100.
  Uint8Array.from(
    createCipheriv("aes-256-ctr", Buffer.from(key, "hex"), sha256(content).subarray(0, 16)).update(new Uint8Array(size)),
  );
