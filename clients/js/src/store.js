/**
 * What the browser keeps of each plan, in IndexedDB.
 *
 * A change reads and writes in one transaction, and is on the disk when its promise is kept: two
 * tabs see one version, and a tab that is closed loses nothing.
 */

import { must } from "./bytes.js";

/**
 * Atomically replaces what is kept under a name by what `change` makes of it, and returns that.
 *
 * @typedef {(name: string, change: (old: any) => any) => Promise<any>} Store
 */

const KEPT = "kept";

/**
 * What a request or a transaction comes to.
 *
 * @param {any} work
 * @returns {Promise<any>}
 */
const done = (work) =>
  new Promise((resolve, reject) => {
    work.onsuccess = work.oncomplete = () => resolve(work.result);
    work.onerror = work.onabort = reject;
  });

/** @type {Store} */
export const browserStore = async (name, change) => {
  try {
    const opening = indexedDB.open("shoal");
    opening.onupgradeneeded = () => opening.result.createObjectStore(KEPT);
    const database = await done(opening);
    const transaction = database.transaction(KEPT, "readwrite", { durability: "strict" });
    const kept = transaction.objectStore(KEPT);
    const value = change(await done(kept.get(name)));
    kept.put(value, name);
    await done(transaction);
    database.close();
    return value;
  } catch {
    must(0, "this browser stores nothing.");
  }
};
