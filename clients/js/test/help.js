/** What several tests use. */

import { readFileSync } from "node:fs";

const data = new URL("../../../tests/data/", import.meta.url);

/** @param {string} name */
export const vectors = (name) => JSON.parse(readFileSync(new URL(name, data), "utf8"));

/** @param {string} text */
export const unhex = (text) => Uint8Array.from(Buffer.from(text, "hex"));

/** What `work` returns if the system's random bytes are the given ones, and no others. */
export function withRandom(text, work) {
  let rest = unhex(text);
  const real = crypto.getRandomValues;
  crypto.getRandomValues = (bytes) => {
    if (rest.length < bytes.length) throw new Error("more random bytes are drawn than expected");
    bytes.set(rest.slice(0, bytes.length));
    rest = rest.slice(bytes.length);
    return bytes;
  };
  try {
    return work();
  } finally {
    crypto.getRandomValues = real;
  }
}

/** What `work` returns if one method of Web Crypto is another one. */
export async function withSubtle(name, method, work) {
  const { subtle } = crypto;
  subtle[name] = method;
  try {
    return await work();
  } finally {
    delete subtle[name];
  }
}

/** A row of `bits` bits with these set. */
export function rowOf(bits, places) {
  const row = new Uint8Array(Math.ceil(bits / 8));
  for (const place of places) row[place >> 3] |= 1 << (place & 7);
  return row;
}

/** A copy, as `structuredClone` makes it; here it cannot copy keys, which nobody can change. */
const copied = (value) =>
  Array.isArray(value)
    ? value.map(copied)
    : value?.constructor === Object
      ? Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, copied(inner)]))
      : value instanceof CryptoKey
        ? value
        : structuredClone(value);

/** Keeps things in memory as IndexedDB does: what is inside is a copy. */
export function memoryStore() {
  const kept = new Map();
  return async (name, change) => {
    await null;
    const value = change(copied(kept.get(name)));
    kept.set(name, copied(value));
    return value;
  };
}
