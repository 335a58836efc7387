/** Bytes, texts, hashes, keys, and the one JSON text of a document. */

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

export const Octets = Uint8Array;

/** Web Crypto, which a page has on https and on this machine itself. */
export const { subtle } = crypto;

/** What went wrong, in one sentence. */
export class ShoalError extends Error {}

/** @type {(sentence: string) => never} */
export const fail = (sentence) => {
  throw new ShoalError(sentence);
};

/** @type {(holds: unknown, sentence: string) => asserts holds} */
export const must = (holds, sentence) => {
  holds || fail(sentence);
};

/** @type {(text: string) => Bytes} */
export const utf8 = (text) => /** @type {Bytes} */ (new TextEncoder().encode(text));

/** @type {(value: unknown) => value is string} */
export const isText = (value) => typeof value == "string";

/**
 * One behind the other; a text as UTF-8.
 *
 * @param {...(Uint8Array | ArrayBuffer | string)} parts
 * @returns {Bytes}
 */
export const join = (...parts) =>
  new Octets(
    parts.flatMap((part) => [...(isText(part) ? utf8(part) : new Octets(part))]),
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
  bytes.reduce((text, byte) => text + (256 + byte).toString(16).slice(1), "");

/**
 * The bytes of a base64url text.
 *
 * @param {string} text
 */
export const decoded = (text) =>
  Octets.from(atob(text.replace(/[-_]/g, (sign) => (sign < "A" ? "+" : "/"))), (one) =>
    one.charCodeAt(0),
  );

const SHA = "SHA-256";

/**
 * The hash of the parts, one behind the other.
 *
 * @param {...(Uint8Array | ArrayBuffer | string)} parts
 */
export const sha256 = async (...parts) => join(await subtle.digest(SHA, join(...parts)));

/**
 * A key of its raw bytes; not every browser has every kind.
 *
 * @param {BufferSource} raw
 * @param {string} algorithm
 * @param {KeyUsage[]} usages
 */
export const importKey = (raw, algorithm, ...usages) =>
  subtle
    .importKey("raw", raw, { name: algorithm, hash: SHA }, false, usages)
    .catch(() => fail(`this browser takes no such ${algorithm} key.`));

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
