/** Bytes, texts, hashes, keys, and the one JSON text of a document. */

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

export const Octets = Uint8Array;

/** Web Crypto, which a page has on https and on this machine itself. */
export const { subtle } = globalThis.crypto ?? {};

/** What went wrong, in one sentence. */
export class ShoalError extends Error {}

/**
 * @param {unknown} holds
 * @param {string} sentence what is said where it does not hold
 * @returns {asserts holds}
 */
export function must(holds, sentence) {
  if (!holds) throw new ShoalError(sentence);
}

/** @type {(text: string) => Bytes} */
export const utf8 = (text) => /** @type {Bytes} */ (new TextEncoder().encode(text));

/**
 * One behind the other; a text as UTF-8.
 *
 * @param {...(Uint8Array | ArrayBuffer | string)} parts
 * @returns {Bytes}
 */
export const join = (...parts) =>
  new Octets(
    parts.flatMap((part) => [...(typeof part == "string" ? utf8(part) : new Octets(part))]),
  );

/**
 * A whole number in so many bytes, little endian.
 *
 * @param {number} value
 * @param {number} size
 */
export const little = (value, size) =>
  Octets.from({ length: size }, (_, place) => (value / 256 ** place) & 255);

/** @type {(bytes: Uint8Array) => string} */
export const hex = (bytes) =>
  [...bytes].map((byte) => (256 + byte).toString(16).slice(1)).join("");

/**
 * The bytes of a base64url text.
 *
 * @param {string} text
 */
export const decoded = (text) =>
  Octets.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));

const SHA = "SHA-256";

/** @type {(content: BufferSource) => Promise<Bytes>} */
export const sha256 = async (content) =>
  new Octets(await subtle.digest(SHA, content));

/**
 * A key of its raw bytes; not every browser has every kind.
 *
 * @param {BufferSource} raw
 * @param {string} algorithm
 * @param {KeyUsage[]} usages
 */
export async function importKey(raw, algorithm, ...usages) {
  try {
    return await subtle.importKey("raw", raw, { name: algorithm, hash: SHA }, false, usages);
  } catch {
    throw new ShoalError(`this browser takes no such ${algorithm} key.`);
  }
}

/**
 * @param {CryptoKey} key
 * @param {...(Uint8Array | string)} parts
 */
export const hmac = (key, ...parts) => subtle.sign("HMAC", key, join(...parts));

/**
 * The one JSON text of a document (RFC 8785).
 *
 * @param {any} value
 * @returns {string}
 */
export const canonical = (value) =>
  Array.isArray(value)
    ? `[${value.map(canonical)}]`
    : Object(value) === value
      ? `{${Object.keys(value)
          .sort()
          .map((name) => canonical(name) + ":" + canonical(value[name]))}}`
      : JSON.stringify(value);
