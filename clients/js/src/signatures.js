/** Documents that a pinned key signed, or a key that the pinned one leads to. */

import { decoded, importKey, join, subtle } from "./bytes.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

const ED25519 = "Ed25519";

/**
 * @param {string} key
 * @param {Bytes} content
 * @param {string | null} signature
 */
export const isSigned = async (key, content, signature) =>
  subtle.verify(
    ED25519,
    await importKey(decoded(key), ED25519, "verify"),
    decoded(signature ?? ""),
    content,
  );

/**
 * The newest key that a pinned one leads to: each old key signed the next one.
 *
 * @param {string} key
 * @param {{links: {key: string, next: string, signature: string}[]}} keys
 */
export const newestKey = async (key, { links }) => {
  for (const link of links)
    if (
      link.key == key &&
      (await isSigned(key, join("shoal next key\0", decoded(link.next)), link.signature))
    )
      key = link.next;
  return key;
};
