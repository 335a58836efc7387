/** One plan in one browser: fetched and checked, answered once, sent until it is accepted. */

import { encode } from "./answers.js";
import { decoded, hmac, importKey, join, little, must, Octets, ShoalError, subtle } from "./bytes.js";
import { readPlan } from "./plan.js";
import { below, draw, fairBytes, randomize } from "./random.js";
import { isSigned, newestKey } from "./signatures.js";
import { browserStore } from "./store.js";
import { packFragments, packReport, packSealed, setPositions } from "./wire.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./plan.js").Plan} Plan */

/**
 * What became of an answer so far.
 *
 * @typedef {object} Ticket
 * @property {"waiting" | "sent" | "expired"} state
 * @property {number} window
 * @property {number} [due] when it is tried next, in milliseconds since 1970
 * @property {string} [reason] why it still waits
 */

/**
 * A report that waits. When it is settled, its id and its bits are forgotten.
 *
 * @typedef {Ticket & {to: string, due: number, tries: number, ends: number, id: Bytes, row: Bytes,
 *   set: number[] | null, body: Bytes | null}} Waiting
 * @typedef {{text?: string, key?: string, secret?: CryptoKey, reports: Record<number, Waiting>}} Kept
 */

/**
 * @typedef {object} Options
 * @property {string} plan the plan's id; ship it with the page
 * @property {string} to the collector or the relay: `https://host`, without a slash at its end
 * @property {string} [key] the public key that plans are signed with, in base64url; a plan with a
 *   relay needs it
 * @property {number} [limit] the largest local epsilon of a plan that is answered; a plan whose
 *   promise is not local needs it
 * @property {typeof globalThis.fetch} [fetch] makes the requests
 * @property {import("./store.js").Store} [store] keeps things, if not IndexedDB
 */

const DAY = 864e5;

/** @param {Options} options */
export function shoal({ plan: planId, to, key, limit, fetch = globalThis.fetch, store = browserStore }) {
  must(subtle, "there is no Web Crypto; use https.");
  const path = `/v1/plans/${planId}`;

  /** @type {(change?: (kept: Kept) => void) => Promise<Kept>} */
  const keep = (change) =>
    store(planId, (kept = { reports: {} }) => {
      change?.(kept);
      return kept;
    });

  /**
   * Change a report that still waits.
   *
   * @type {(slot: number, change: (report: Waiting) => Ticket) => Promise<Waiting>}
   */
  const update = async (slot, change) => {
    const { reports } = await keep(({ reports }) => {
      if (reports[slot].state == "waiting")
        reports[slot] = /** @type {Waiting} */ (change(reports[slot]));
    });
    return reports[slot];
  };

  /**
   * One request, with as little about the sender as a browser allows.
   *
   * @type {(door: string, body?: Bytes | null) => Promise<Response>}
   */
  const request = (door, body) =>
    fetch(to + door, {
      method: body ? "POST" : "GET",
      body,
      headers: body ? { "Content-Type": `application/vnd.shoal.${door.slice(path.length + 1)}` } : {},
      credentials: "omit",
      referrerPolicy: "no-referrer",
      redirect: "error",
      // Goes on when the tab is closed; browsers refuse larger bodies.
      keepalive: /** @type {Bytes} */ (body)?.length < 6e4,
      signal: AbortSignal.timeout(1e4),
    });

  /**
   * The text of an answer, signed with the pinned key or one that it leads to.
   *
   * @param {Response} reply
   */
  const signed = async (reply) => {
    must(reply.ok, `the collector said ${reply.status}.`);
    const content = new Octets(await reply.clone().arrayBuffer());
    const signature = reply.headers.get("Shoal-Signature");
    must(
      !key ||
        (await isSigned(key, content, signature)) ||
        (await isSigned(
          await newestKey(key, await (await request("/v1/keys")).json()),
          content,
          signature,
        )),
      "this was not signed with the pinned key.",
    );
    return reply.text();
  };

  /** The plan, from the collector the first time, and checked every time. */
  const agreed = async () => {
    const kept = await keep();
    const text = kept.key === key && kept.text;
    const fetched = text || (await signed(await request(path)));
    const read = await readPlan(fetched, planId, limit);
    const { parties } = read[0];
    must(
      !parties || (key && parties.relay == new URL(to).origin),
      `this plan needs a key, and the relay ${parties?.relay}.`,
    );
    if (!text) await keep((kept) => Object.assign(kept, { text: fetched, key }));
    return read;
  };

  /**
   * The permanent vector of an answer. Its flips follow from the answer and from a secret that this
   * browser keeps for the plan and cannot show; neither the answer nor the vector is stored.
   *
   * @type {(id: Bytes, vector: Bytes, bits: number, q: number[]) => Promise<Bytes>}
   */
  const permanent = async (id, vector, bits, q) => {
    const fresh = await importKey(draw(32), "HMAC", "sign");
    const { secret } = await keep((kept) => {
      kept.secret ??= fresh;
    });
    const seed = await hmac(/** @type {CryptoKey} */ (secret), "shoal permanent\0", id, vector);
    const fair = await subtle.encrypt(
      { name: "AES-CTR", counter: new Octets(16), length: 64 },
      await importKey(seed, "AES-CTR", "encrypt"),
      new Octets(fairBytes(bits, q)),
    );
    return randomize(vector, bits, q, new Octets(fair));
  };

  /** @param {number} slot */
  const attempt = async (slot) => {
    const now = Date.now();
    let isDue = false;
    const report = await update(slot, (report) => {
      if (now > report.ends) return { state: "expired", window: report.window };
      // A time far ahead was set by a clock that was wrong.
      isDue = report.to == to && (report.due <= now || report.due > now + 2 * DAY);
      // Stored before the attempt, so that a tab that is closed in it does not hurry the next one.
      if (isDue) report.due = now + below(Math.min(3e4 * 2 ** report.tries++, DAY / 4));
      return report;
    });
    if (!isDue) return report;
    try {
      return await post(slot, report);
    } catch (error) {
      const reason = error instanceof ShoalError ? error.message : "no answer";
      return update(slot, (report) => ({ ...report, reason }));
    }
  };

  /** @type {(slot: number, report: Waiting) => Promise<Waiting>} */
  const post = async (slot, { id, window, row, set, body }) => {
    const [{ parties }, planBytes] = await agreed();
    /** @type {Response | undefined} */
    let reply;
    // 412: the crowd has another key by now, and the same report is sealed again.
    for (let turn = 0; !reply || (parties && reply.status == 412 && turn < 3); turn++) {
      if (parties && (reply || !body)) {
        reply = await request(`${path}/crowd-key?window=${window}`);
        if (!reply.ok) break;
        const document = JSON.parse(await signed(reply));
        must(
          document.plan == planId && document.window == window && document.version == 1,
          "the crowd's key is for something else.",
        );
        const contents = set ? packFragments(set, parties.messages) : [join(draw(16), row)];
        body = await packSealed(planBytes, id, window, decoded(document.key), contents);
        await update(slot, (report) => ({ ...report, body }));
      }
      reply = await request(path + (parties ? "/sealed" : "/reports"), body);
    }
    const { status, headers } = reply;
    return update(slot, (report) =>
      status == 202
        ? { state: "sent", window }
        : // Where by this clock the window has not passed, one of the two clocks is wrong.
          (status == 409 || status == 410) && !window
          ? { state: "expired", window }
          : {
              ...report,
              due: report.due + Math.min(1e3 * +(headers.get("Retry-After") ?? 0) || 0, DAY),
              reason: `the collector said ${status}`,
            },
    );
  };

  return {
    /**
     * What is asked and promised; `localEpsilon` is what one report, or with memory any number of
     * reports of one answer, reveals to whoever sees it.
     *
     * @returns {Promise<Plan & {localEpsilon: number}>}
     */
    plan: async () => {
      const [plan, , , localEpsilon] = await agreed();
      return { ...plan, localEpsilon };
    },

    /**
     * Make the report of an answer and store it. A plan is answered once, or, where it has memory,
     * once in each window; answering again makes no second report.
     *
     * @param {Record<string, any>} answers by question
     * @returns {Promise<Ticket>}
     */
    answer: async (answers) => {
      const [plan, planBytes, layout] = await agreed();
      const { q, memory, parties, survey, view } = plan;
      const [, bits, , cohorts] = layout;
      const now = Date.now();
      const length = 1e3 * (plan.window ?? 0);
      const window = length && Math.floor(now / length);
      const slot = memory ? window : 0;
      const cohort = cohorts && below(cohorts);
      let vector = await encode(survey, layout, answers, cohort);
      if (memory) vector = await permanent(planBytes, vector, bits, memory.q1);
      vector = randomize(vector, bits, memory ? memory.q2 : q);
      const row = cohort == null ? vector : join(little(cohort, 2), vector);
      const id = draw(16);
      const { reports } = await keep(({ reports }) => {
        reports[slot] ??= {
          state: "waiting",
          window,
          to,
          due: now,
          tries: 0,
          // The collector takes reports of this window and the one before.
          ends: length ? (window + 2) * length : now + 30 * DAY,
          id,
          row,
          set: parties && view == "counts" ? setPositions(vector, parties.messages) : null,
          body: parties ? null : packReport(planBytes, id, window, row),
        };
      });
      return reports[slot];
    },

    /**
     * Try every report whose time has come, once, and return what became of each answer.
     *
     * @returns {Promise<Ticket[]>}
     */
    send: async () => Promise.all(Object.keys((await keep()).reports).map((slot) => attempt(+slot))),
  };
}
