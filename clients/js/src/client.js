/** One plan in one browser: fetched and checked, answered once, sent until it is accepted. */

import { encode } from "./answers.js";
import { canonical, hex, importKey, join, little, min, must, Octets, sha256, ERROR, subtle } from "./bytes.js";
import { readPlan } from "./plan.js";
import { below, draw, fairBytes, randomize } from "./random.js";
import { isSigned } from "./signatures.js";
import { browserStore } from "./store.js";
import { encoding, isMoved } from "./survey.js";
import { packReport } from "./wire.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./plan.js").Plan} Plan */

/**
 * What `shoal` needs for a plan with two parties; `relay.js` and `dap.js` have one each.
 *
 * @typedef {object} Encryption
 * @property {(plan: Plan, key?: string) => unknown} origin where the reports of a plan go, if this
 *   is its encryption
 * @property {(plan: Plan, vector: Bytes, row: Bytes) => Bytes} kept what is stored of a report
 * @property {(request: Request, signed: (reply: Response) => Promise<string>, address: string,
 *   planId: Bytes, report: Row, plan: Plan, bits: number) => Promise<Bytes | Response>} pack the body of an
 *   upload, with keys that are fetched now; or a response that is no key
 * @property {(address: string, planId: Bytes) => [address: string, type: string]} upload where a body goes, and
 *   its media type
 * @property {(reply: Response) => number | Promise<number>} status of an upload, as a collector's
 * @typedef {(address: string, body?: Bytes, type?: string) => Promise<Response>} Request
 * @typedef {{id: Bytes, window: number, row: Bytes}} Row
 */

/**
 * What became of an answer so far.
 *
 * @typedef {object} Ticket
 * @property {"waiting" | "sent" | "expired"} state
 * @property {number} window
 * @property {number} [due] when it is tried next, in milliseconds since 1970
 * @property {string} [reason] why it still waits
 * @property {boolean} [isNew] of `answer`: whether this very answer became the report
 */

/**
 * A report that waits: its bits, and, where a plan has two parties, the body of the request once it
 * is made. When it is settled, all that is forgotten.
 *
 * @typedef {Ticket & {to: string, due: number, tries: number, ends: number, id: Bytes,
 *   row: Bytes, body?: Bytes, crowds?: number}} Waiting
 * @typedef {{text?: string, key?: string, reports: Record<number | string, Waiting>}} Kept
 */

/**
 * The secret of permanent flips, and the words that the survey had while they were used.
 *
 * @typedef {{secret: CryptoKey, texts: string[]}} Flips
 */

/**
 * @typedef {object} Options
 * @property {string} plan the plan's id; ship it with the page
 * @property {string} to the collector, the relay or the leader: `https://host`, without a slash at
 *   its end
 * @property {string} [key] the public key that plans are signed with, in base64url; a plan with a
 *   relay needs it
 * @property {number} [limit] the largest local epsilon of a plan that is answered; a plan whose
 *   promise is not local needs it
 * @property {Encryption} [relay] that of `relay.js`; a plan with a relay needs it
 * @property {Encryption} [dap] that of `dap.js`; a plan with a leader and a helper needs it
 * @property {typeof globalThis.fetch} [fetch] makes the requests
 * @property {import("./store.js").Store} [store] keeps things, if not IndexedDB
 */

const DAY = 864e5;
const WAITING = "waiting";
/** @type {Partial<Ticket>} */
const EXPIRED = { state: "expired" };
/** How often a report is encrypted at most: a dishonest relay can use each for another crowd. */
const MAX_CROWDS = 3;

/** @param {number} status */
const said = (status) => `the collector said ${status}`;

/** @param {Options} options */
export const shoal = ({
  plan: planId,
  to,
  key,
  limit,
  relay,
  dap = relay,
  fetch: ask = fetch,
  store = browserStore,
}) => {
  must(subtle, "there is no Web Crypto; use https.");
  const address = `${to}/v1/plans/${planId}`;

  /** @type {(change?: (kept: Kept) => void) => Promise<Kept>} */
  const keep = (change) =>
    store(planId, (kept = { reports: {} }) => {
      change?.(kept);
      return kept;
    });

  /**
   * Change a report that still waits, or is new; of one that is settled, the rest is forgotten.
   *
   * @type {(slot: number | string, change: (report: Waiting) => Partial<Waiting> | void) => Promise<Waiting>}
   */
  const update = async (slot, change) =>
    (
      await keep(({ reports }) => {
        const report = reports[slot] ?? { state: WAITING };
        const { state, window } = Object.assign(report, report.state == WAITING && change(report));
        reports[slot] = state == WAITING ? report : /** @type {Waiting} */ ({ state, window });
      })
    ).reports[slot];

  /**
   * One request, with as little about the sender as a browser allows.
   *
   * @type {Request}
   */
  const request = (address, body, type) =>
    ask(address, {
      method: body ? "POST" : "GET",
      body,
      headers: body && { "Content-Type": "application/" + type },
      credentials: "omit",
      referrerPolicy: "no-referrer",
      redirect: "error",
      cache: "no-store",
      // Goes on when the tab is closed; browsers refuse larger bodies.
      keepalive: /** @type {Bytes} */ (body)?.length < 6e4,
      signal: AbortSignal.timeout(1e4),
    });

  /**
   * The text of a response, signed with the pinned key.
   *
   * @param {Response} reply
   */
  const signed = async (reply) => {
    must(reply.ok, said(reply.status));
    const text = await reply.text();
    if (key)
      must(
        await isSigned(key, join(text), reply.headers.get("Shoal-Signature")),
        "the pinned key did not sign this; has it changed?",
      );
    return text;
  };

  /** The plan, from the collector the first time, and checked every time. */
  const agreed = async () => {
    const kept = await keep();
    const text = kept.key === key && kept.text;
    const fetched = text || (await signed(await request(address)));
    const read = await readPlan(fetched, planId, limit);
    const [{ parties }] = read;
    if (parties)
      must(
        dap?.origin(read[0], key) == new URL(to).origin,
        `this plan needs ${parties.relay ? "a key, relay.js" : "dap.js"}, and to: ${parties.relay ?? parties.leader}.`,
      );
    if (!text) await keep((kept) => {
        kept.text = fetched;
        kept.key = key;
      });
    return read;
  };

  /**
   * Bytes derived from an answer and from a secret that this browser keeps for the survey and that
   * no script can read. The flips of a permanent vector are made from them; neither the answer nor
   * the vector is stored. Plans that differ only in words, not in which bits an answer sets, share
   * the secret, so that an edit of words draws no new flips.
   *
   * @type {(plan: Plan, blocks: Map<string, import("./survey.js").Block>, vector: Bytes,
   *   size: number) => Promise<Bytes>}
   */
  const permanent = async (plan, blocks, vector, size) => {
    const name = "AES-CTR";
    const fresh = await importKey(draw(32), name, "encrypt");
    const [rules, words] = encoding(plan, blocks);
    const text = canonical(words);
    /** @type {CryptoKey | undefined} */
    let secret;
    await store(hex(await sha256(canonical(rules))), (/** @type {Flips[]} */ all = []) => {
      let flips = all.find(({ texts }) => texts.includes(text));
      if (!flips) {
        // With the latest words alone, two edits that move none could together move one.
        flips = all
          .filter(({ texts }) => !texts.some((old) => isMoved(JSON.parse(old), words)))
          .pop();
        if (!flips) all.push((flips = { secret: fresh, texts: [] }));
        flips.texts.push(text);
      }
      ({ secret } = flips);
      return all;
    });
    return join(
      await subtle.encrypt(
        // Where the counter starts follows from the answer. That two answers count over the same
        // blocks has a probability below 2^-100.
        { name, counter: (await sha256(vector)).slice(0, 16), length: 64 },
        /** @type {CryptoKey} */ (/** @type {unknown} */ (secret)),
        new Octets(size),
      ),
    );
  };

  /** @param {string} slot */
  const attempt = async (slot) => {
    const now = Date.now();
    /** @type {boolean | undefined} */
    let isDue;
    const report = await update(slot, (report) => {
      if (now > report.ends) return EXPIRED;
      // A time far ahead was set by a clock that was wrong.
      isDue = report.to == to && (report.due <= now || report.due > now + 2 * DAY);
      // Stored before the attempt, so that a tab that is closed in it does not hurry the next one.
      if (isDue) report.due = now + below(min(3e4 * 2 ** report.tries++, DAY / 4));
    });
    return isDue
      ? post(slot, report)
          .catch((error) => ({
            // By its name: the relay's part may be a file of its own, with a class of its own.
            reason: error.name == ERROR ? error.message : "no answer",
          }))
          .then((news) => update(slot, () => news))
      : report;
  };

  /**
   * Send a report, and say what is new about it.
   *
   * @type {(slot: string, report: Waiting) => Promise<Partial<Ticket>>}
   */
  const post = async (slot, report) => {
    const { id, window, row } = report;
    const [plan, planBytes, , , , bits] = await agreed();
    // The same bytes every time; where there are two parties, those that are stored.
    let body = plan.parties ? report.body : packReport(planBytes, id, window, row);
    let { crowds = 0 } = report;
    const two = plan.parties && /** @type {Encryption} */ (dap);
    let status = 0;
    /** @type {Response} */
    let reply;
    do {
      if (status || !body) {
        const made = await /** @type {Encryption} */ (two).pack(request, signed, address, planBytes, report, plan, bits);
        if ("status" in made) {
          reply = made;
          ({ status } = made);
          break;
        }
        body = made;
        crowds++;
        await update(slot, () => ({ body, crowds }));
      }
      const [where, type] = two ? two.upload(address, planBytes) : [address + "/reports", "vnd.shoal.reports"];
      reply = await request(where, body, type);
      status = two ? await two.status(reply) : reply.status;
      // 412: there is another key by now, and the same report is encrypted again.
    } while (two && status == 412 && crowds < MAX_CROWDS);
    if (status == 412) return EXPIRED;
    return status == 202
      ? { state: "sent" }
      : // Where by this clock the window has not passed, one of the two clocks is wrong.
        (status == 409 || status == 410) && !window
        ? EXPIRED
        : {
            due: report.due + min(1e3 * /** @type {any} */ (reply.headers.get("Retry-After")) || 0, DAY),
            reason: said(status),
          };
  };

  return {
    /**
     * What is asked and promised; `localEpsilon` is what one report, or with memory any number of
     * reports of one answer, reveals to an observer.
     */
    plan: async () => (await agreed())[0],

    /**
     * Make the report of an answer and store it. A plan is answered once, or, where it has memory,
     * once in each window; answering again makes no second report, and `isNew` of the ticket is false.
     *
     * @param {Record<string, any>} answers by question
     * @returns {Promise<Ticket>}
     */
    answer: async (answers) => {
      const [plan, , q1, q2, blocks, bits] = await agreed();
      const { memory, parties, cohorts } = plan;
      const now = Date.now();
      // No window is one of length 0.
      const length = 1e3 * /** @type {number} */ (plan.window);
      const window = length && (now / length) | 0;
      const cohort = cohorts ? below(cohorts) : 0;
      // With memory the numbers of a question are rounded with the same draw every time.
      const rounding = memory
        ? async (/** @type {number} */ start) =>
            permanent(plan, blocks, await sha256(`rounding ${start}`), 8)
        : undefined;
      let vector = await encode(plan.survey, [blocks, bits], answers, cohort, rounding);
      if (memory)
        vector = randomize(vector, bits, q1, await permanent(plan, blocks, vector, fairBytes(bits, q1)));
      vector = randomize(vector, bits, q2);
      const row = join(little(cohort, cohorts ? 2 : 0), vector);
      let isNew = false;
      const ticket = await update(memory ? window : 0, (report) => {
        isNew = !report.id;
        if (isNew)
          return {
            window,
            to,
            due: now,
            tries: 0,
            // The collector takes reports of this window and the one before.
            ends: length ? (window + 2) * length : now + 30 * DAY,
            id: draw(16),
            row: parties ? /** @type {Encryption} */ (dap).kept(plan, vector, row) : row,
          };
      });
      return { ...ticket, isNew };
    },

    /**
     * Try every report whose time has come, once, and return what became of each answer.
     *
     * @returns {Promise<Ticket[]>}
     */
    send: async () => Promise.all(Object.keys((await keep()).reports).map(attempt)),
  };
};
