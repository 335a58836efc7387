/** The bytes that are sent to a relay: encrypted messages for the analyzer behind it. */

import { decoded, hex, join, little, must, sha256 } from "./bytes.js";
import { encrypt } from "./encryption.js";
import { below, draw } from "./random.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

/**
 * The fragments of a report: each the position of a set bit, or the largest that there is. Of more
 * set bits than messages, a random part is dropped.
 *
 * @param {Bytes} row
 * @param {number} messages
 */
export const fragments = (row, messages) => {
  const positions = [];
  for (let place = 0; place < 8 * row.length; place++)
    if ((row[place >> 3] >> (place & 7)) & 1) positions.push(little(place));
  while (positions.length > messages) positions.splice(below(positions.length), 1);
  while (positions.length < messages) positions.push(little(2 ** 32 - 1));
  return positions;
};

/**
 * The contents of a report's messages, in random order, each with an identifier of its own.
 *
 * @param {Bytes[]} parts of the report
 */
export const packMessages = ([...parts]) => {
  const ids = parts.map(() => draw(16));
  return parts.map((part, place) => {
    const other = place + below(parts.length - place);
    const chosen = parts[other];
    // This one takes the place of the other, and may be chosen later.
    parts[other] = part;
    return join(ids[place], chosen);
  });
};

/**
 * What every message of a plan and window is bound to.
 *
 * @param {Bytes} planBytes
 * @param {number} number of the window
 */
export const encryptionInfo = (planBytes, number) =>
  join("shoal encrypted\0\0\0\x01", planBytes, little(number));

/**
 * A request with one encrypted report.
 *
 * @param {Bytes} plan
 * @param {Bytes} id
 * @param {number} window
 * @param {Bytes} key the public key of the crowd
 * @param {Bytes[]} contents of the messages
 */
export const packEncrypted = async (plan, id, window, key, contents) =>
  join(
    "ENCRYP\x01",
    plan,
    little(window),
    await sha256(key),
    little(1),
    id,
    ...(await Promise.all(
      contents.map((content) => encrypt(content, key, encryptionInfo(plan, window))),
    )),
  );

/** @type {import("./client.js").Encryption} */
export const relay = {
  origin: ({ parties }, key) => key && parties?.relay,
  parts: ({ view, parties }, vector, row) =>
    view == "counts" ? fragments(vector, /** @type {any} */ (parties).messages) : [row],
  pack: async (request, signed, address, planId, { id, window, parts }) => {
    const reply = await request(`${address}/crowd-key?window=${window}`);
    if (!reply.ok) return reply;
    const document = JSON.parse(await signed(reply));
    must(
      document.plan == hex(planId) && document.window == window && document.version == 1,
      "the key is not this crowd's.",
    );
    return packEncrypted(planId, id, window, decoded(document.key), packMessages(parts));
  },
  upload: (address) => [address + "/encrypted", "vnd.shoal.encrypted"],
  status: (reply) => reply.status,
};
