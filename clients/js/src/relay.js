/** The bytes that are sent to a relay: a report, encrypted for the analyzer behind it. */

import { decoded, hex, join, little, must, sha256 } from "./bytes.js";
import { encrypt } from "./encryption.js";
import { draw } from "./random.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

/**
 * What every report of a plan and window is bound to.
 *
 * @param {Bytes} planBytes
 * @param {number} number of the window
 */
export const encryptionInfo = (planBytes, number) =>
  join("shoal encrypted\0\0\0\x01", planBytes, little(number));

/**
 * A request with one encrypted report, which has a second identifier, for the analyzer, inside.
 *
 * @param {Bytes} plan
 * @param {Bytes} id
 * @param {number} window
 * @param {Bytes} key the public key of the crowd
 * @param {Bytes} row
 */
export const packEncrypted = async (plan, id, window, key, row) =>
  join(
    "ENCRYP\x01",
    plan,
    little(window),
    await sha256(key),
    little(1),
    id,
    await encrypt(join(draw(16), row), key, encryptionInfo(plan, window)),
  );

/** @type {import("./client.js").Encryption} */
export const relay = {
  origin: ({ parties, view }, key) => key && view == "reports" && parties?.relay,
  kept: (plan, vector, row) => row,
  pack: async (request, signed, address, planId, { id, window, row }) => {
    const reply = await request(`${address}/crowd-key?window=${window}`);
    if (!reply.ok) return reply;
    const document = JSON.parse(await signed(reply));
    must(
      document.plan == hex(planId) && document.window == window && document.version == 1,
      "the key is not this crowd's.",
    );
    return packEncrypted(planId, id, window, decoded(document.key), row);
  },
  upload: (address) => [address + "/encrypted", "vnd.shoal.encrypted"],
  status: (reply) => reply.status,
};
