/**
 * What the browser keeps of each plan, in IndexedDB.
 *
 * A change reads and writes in one transaction, and is on the disk when its promise is kept: two
 * tabs see one version, and a tab that is closed loses nothing.
 */

import { ShoalError } from "./bytes.js";

/**
 * Atomically replaces what is kept under a name by what `change` makes of it, and returns that.
 *
 * @typedef {(name: string, change: (old: any) => any) => Promise<any>} Store
 */

/** @type {Store} */
export const browserStore = async (name, change) => {
  try {
    return await new Promise((resolve, reject) => {
      const opening = indexedDB.open("shoal");
      opening.onupgradeneeded = () => opening.result.createObjectStore("kept");
      opening.onerror = reject;
      opening.onsuccess = () => {
        const database = opening.result;
        const transaction = database.transaction("kept", "readwrite", { durability: "strict" });
        const kept = transaction.objectStore("kept");
        const reading = kept.get(name);
        /** @type {any} */
        let value;
        reading.onsuccess = () => kept.put((value = change(reading.result)), name);
        transaction.onabort = reject;
        transaction.oncomplete = () => {
          database.close();
          resolve(value);
        };
      };
    });
  } catch {
    throw new ShoalError("this browser keeps nothing for this page.");
  }
};
