/** Bytes, texts, hashes, keys, and the one JSON text of a document. */

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

// Short names of what is used often.
export const Octets = Uint8Array;
export const { min } = Math;
export const { isArray } = Array;

/** Web Crypto, which a page has on https and on this machine itself. */
export const { subtle } = crypto;

/** The most bits of a survey, letters of a text, and random bytes that the system gives in one call. */
export const MOST = 65536;

export const ERROR = "ShoalError";

/** What went wrong, in one sentence. */
export class ShoalError extends Error {
  name = ERROR;
}

/** @type {(holds: unknown, sentence: string) => asserts holds} */
export const must = (holds, sentence) => {
  if (!holds) throw new ShoalError(sentence);
};

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
    parts.flatMap((part) => [...new Octets(isText(part) ? new TextEncoder().encode(part) : part)]),
  );

/**
 * Encode a whole number in `size` bytes (default four), little endian.
 *
 * @param {number} value
 * @param {number} [size]
 */
export const little = (value, size = 4) =>
  // A byte takes the lowest eight bits of what is stored in it, without its fraction.
  new Octets(size).map((_, place) => value / 256 ** place);

/** @type {(bytes: Uint8Array) => string} */
export const hex = (bytes) =>
  bytes.reduce((text, byte) => text + (256 + byte).toString(16).slice(1), "");

/**
 * The bytes of a base64url text.
 *
 * @param {string} text
 */
export const decoded = (text) =>
  Octets.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));

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
  /** @type {Promise<CryptoKey>} */ (
    subtle
      .importKey("raw", raw, { name: algorithm, hash: SHA }, false, usages)
      .catch(() => must(0, `this browser refuses the ${algorithm} key.`))
  );

/**
 * The one JSON text of a document (RFC 8785).
 *
 * @param {any} value
 * @returns {string}
 */
export const canonical = (value) =>
  isArray(value)
    ? `[${value.map(canonical)}]`
    : Object(value) === value
      ? `{${Object.keys(value)
          .sort()
          .map((name) => canonical(name) + ":" + canonical(value[name]))}}`
      : JSON.stringify(value);
