/**
 * Uploads to the leader of draft-ietf-ppm-dap-18: a report is split into a share for the leader and
 * one for the helper, each encrypted for its receiver. `src/shoal/protocol/dap` explains the
 * messages.
 */

import { join, little, must, Octets } from "./bytes.js";
import { encrypt } from "./encryption.js";
import { bestChunkLength, randSize, shard } from "./prio3.js";
import { below, draw } from "./random.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./plan.js").Plan} Plan */

const VERSION = "dap-18";
const MEDIA = "ppm-dap;message=";
const HPKE_SUITE = "0,32,0,1,0,1,0,32";

/** What a leader says about a report, as a status that a collector would answer with. */
const STATUS = [400, 202, 202, 410, 412, 400, 400, 410, 400, 425, 425, 412];

/**
 * A whole number, big endian.
 *
 * @param {number} value
 * @param {number} size
 */
const big = (value, size) => little(value, size).reverse();

/**
 * Bytes behind their number, which takes `size` bytes.
 *
 * @param {number} size
 * @param {...(Uint8Array | string)} parts
 */
const sized = (size, ...parts) => {
  const content = join(...parts);
  return join(big(content.length, size), content);
};

/** Where the task of a plan is, below the origin of an aggregator. @type {(planId: Uint8Array) => string} */
const pathOf = (planId) => {
  const text = btoa(String.fromCharCode(...planId));
  return `/dap/${text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "")}/`;
};

/**
 * The number of reports that hold an honest crowd, rounded up exactly.
 *
 * @param {Plan} plan
 */
const reportsNeeded = ({ crowd_size: crowd, honest_fraction: fraction }) => {
  const [digits, exponent = "0"] = (fraction ?? "1").split(/e/i);
  const [whole, decimals = ""] = digits.split(".");
  const shift = decimals.length - +exponent; // a fraction below 1 has decimals
  const honest = BigInt(whole + decimals);
  return Number((BigInt(/** @type {number} */ (crowd)) * 10n ** BigInt(shift) + honest - 1n) / honest);
};

/**
 * The id and the configuration of a plan's task.
 *
 * @param {Plan} plan
 * @param {Bytes} planId
 * @param {number} bits
 */
export const taskOf = (plan, planId, bits) => {
  const { leader, helper, max_weight: weight = 1 } = /** @type {any} */ (plan.parties);
  const chunk = bestChunkLength(bits + 32 - Math.clz32(weight));
  const path = pathOf(planId);
  return join(
    planId,
    sized(1, "shoal"),
    sized(2, leader, path),
    sized(2, helper, path),
    big(/** @type {number} */ (plan.window), 8),
    big(reportsNeeded(plan), 8),
    Octets.of(2, 0, 0), // batches are the leader's selection
    big(5, 4), // Prio3MultihotCountVec
    sized(2, big(bits, 4), big(chunk, 4), big(weight, 8)),
    big(0, 2),
  );
};

/**
 * The key of a window from an aggregator's list.
 *
 * @param {Bytes} list
 * @param {number} window
 */
const keyOf = (list, window) => {
  for (let at = 2; at < list.length; ) {
    const end = at + 9 + 256 * list[at + 7] + list[at + 8];
    if (list[at] == window % 256 && `${list.slice(at + 1, at + 9)}` == HPKE_SUITE && end <= list.length)
      return list.slice(at + 9, end);
    at = end;
  }
  must(0, "an aggregator has no key for this window.");
};

/**
 * The upload of one report, for the lists of keys of leader and helper.
 *
 * @param {Plan} plan
 * @param {Bytes} planId
 * @param {number} bits of a report
 * @param {{id: Bytes, window: number, row: Bytes}} report
 * @param {Bytes[]} lists
 */
export const packShares = async (plan, planId, bits, { id, window, row }, lists) => {
  const keys = lists.map((list) => keyOf(list, window));
  const set = Array.from({ length: bits }, (_, place) => (row[place >> 3] >> (place & 7)) & 1);
  const weight = /** @type {any} */ (plan.parties).max_weight;
  const [shared, shares] = shard(join(VERSION, planId), set, weight, id, draw(randSize()));
  const metadata = join(id, big(window, 8), big(0, 2));
  const publicShare = sized(4, shared);
  const about = join(taskOf(plan, planId, bits), metadata, publicShare);
  const encrypted = await Promise.all(
    shares.map(async (share, place) => {
      const info = join(VERSION, " input share", Octets.of(1, 2 + place));
      const content = join(big(0, 2), sized(4, share));
      const sent = await encrypt(content, /** @type {Bytes} */ (keys[place]), info, about);
      return join(big(window, 1), sized(2, sent.slice(0, 32)), sized(4, sent.slice(32)));
    }),
  );
  return join(metadata, publicShare, ...encrypted);
};

/** @type {import("./client.js").Encryption} */
export const dap = {
  origin: ({ parties, window, view }) => view == "counts" && window && parties?.leader,

  // Of more set bits than agreed, a random part is dropped.
  kept: ({ parties }, vector) => {
    const { max_weight: most } = /** @type {any} */ (parties);
    const places = [];
    for (let place = 0; place < 8 * vector.length; place++)
      if ((vector[place >> 3] >> (place & 7)) & 1) places.push(place);
    while (places.length > most) {
      const [dropped] = places.splice(below(places.length), 1);
      vector[dropped >> 3] ^= 1 << (dropped & 7);
    }
    return vector;
  },

  pack: async (request, signed, address, planId, report, plan, bits) => {
    const lists = [];
    const { leader, helper } = /** @type {any} */ (plan.parties);
    for (const origin of [leader, helper]) {
      const reply = await request(`${origin}${pathOf(planId)}hpke_config`);
      if (!reply.ok) return reply;
      lists.push(join(await reply.arrayBuffer()));
    }
    return packShares(plan, planId, bits, report, lists);
  },

  upload: (address, planId) => {
    const path = pathOf(planId);
    return [`${new URL(address).origin}${path}tasks${path.slice(4)}reports`, MEDIA + "upload-req"];
  },

  status: async (reply) => {
    const content = reply.ok ? join(await reply.arrayBuffer()) : [];
    if (!reply.ok) return reply.status;
    if (!content.length) return 202;
    const type = reply.headers.get("Content-Type")?.replace(/ /g, "");
    // Else it may be a hotel's login page.
    if (type != `application/${MEDIA}upload-errors`) return reply.status;
    return (content.length == 17 && STATUS[content[16]]) || 400;
  },
};
