/** Documents that a pinned key signed. */

import { decoded, importKey, subtle } from "./bytes.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

const ED25519 = "Ed25519";

/**
 * Whether a key signed this. A collector that rotates its key signs with both for a while.
 *
 * @param {string} key
 * @param {Bytes} content
 * @param {string | null} signatures
 */
export const isSigned = async (key, content, signatures) => {
  const pinned = await importKey(decoded(key), ED25519, "verify");
  for (const one of (signatures ?? "").split(/, */, 2))
    if (await subtle.verify(ED25519, pinned, decoded(one), content)) return true;
  return false;
};
