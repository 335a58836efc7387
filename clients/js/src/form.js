/**
 * `<shoal-survey plan="..." to="https://...">`: the questions of a plan as a form.
 *
 * The form is in the page itself, not in a shadow tree, so that the page's styles and labels apply.
 * It needs nothing but the plan: what is asked, and the words for it, come from there.
 */

import { ERROR, must } from "./bytes.js";
import { shoal } from "./client.js";
import { kinds } from "./survey.js";

/** @typedef {import("./survey.js").Question} Question */

/** The sentences of the form; a page may replace them by those of its language. */
export const sentences = {
  loading: "Loading the questions.",
  promise: "Your answers are randomized in this browser before anything is sent.",
  send: "Send",
  yes: "yes",
  no: "no",
  missing: "no answer",
  other: "something else",
  sent: "Thank you. Your report was sent.",
  waiting: "Thank you. Your report will be sent when the network is back.",
  again: "You have answered already; a second answer is not sent.",
};

/**
 * An element with attributes and content; text is never read as HTML.
 *
 * @param {string} name
 * @param {Record<string, any>} attributes
 * @param {...(Node | string)} content
 */
const element = (name, attributes, ...content) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (value !== false) made.setAttribute(key, value === true ? "" : value);
  made.append(...content);
  return made;
};

/**
 * One box or button with its label.
 *
 * @param {string} type
 * @param {string} name
 * @param {string} value
 * @param {string} label
 * @param {boolean} [required]
 */
const pick = (type, name, value, label, required = false) =>
  element("label", {}, element("input", { type, name, value, required }), " ", label);

/** The values of the buttons for what is not among the options; no option is one of them. */
const MISSING = "\0missing";
const OTHER = "\0other";

/** Whether a question is a group of boxes or buttons; a date has labels, but people give a day. */
const grouped = (/** @type {Question} */ { kind, options }) => kind == "yes/no" || (options && kind != "date");

/** What a device answers from its own past, so that nobody is asked; people may know a funnel's step. */
const byDevice = (/** @type {Question} */ { past }) => past && past != "funnel";

/**
 * The inputs of a question.
 *
 * @param {any} question
 * @param {string} name of the inputs
 * @returns {(Node | string)[]}
 */
const inputs = (question, name) => {
  const { kind, options, titles, missing, other, low, high, unit } = question;
  if (grouped(question)) {
    const many = kind == "flags";
    const words = options ?? ["yes", "no"];
    /** @type {[string, string][]} */
    const listed = words.map((/** @type {"yes" | "no"} */ word) => [
      word,
      titles?.[word] ?? (options ? word : sentences[word]),
    ]);
    if (other) listed.push([OTHER, sentences.other]);
    if (missing) listed.push([MISSING, sentences.missing]);
    return listed.map(([value, label]) =>
      pick(many ? "checkbox" : "radio", name, value, label, !many),
    );
  }
  const input =
    kind == "number"
      ? { type: "number", step: "any", min: low ?? false, max: high ?? false, required: !missing }
      : kind == "date"
        ? { type: "date", required: !missing }
        : { type: "text" };
  return [element("input", { name, id: name, ...input }), ...(unit ? [" ", unit] : [])];
};

/**
 * The answer that the form holds.
 *
 * @param {Question} question
 * @param {FormDataEntryValue[]} values
 */
const answerOf = ({ kind }, values) => {
  if (kind == "flags") return values;
  const [one = ""] = values;
  return one == MISSING || (one === "" && kind != "text") ? null : one;
};

/** Say something where a screen reader hears it. */
const told = () => element("p", { role: "status" });

export class ShoalSurvey extends HTMLElement {
  /** Passed on to `shoal`; a page sets `relay` or `store` here before it adds the element. */
  options = {};

  /** Answers that the page gives itself, such as `{ onboarding: "tour" }` for the arm that it shows. */
  answers = {};

  async connectedCallback() {
    const status = told();
    status.textContent = sentences.loading;
    this.replaceChildren(status);
    try {
      const { plan, to, key, limit } = /** @type {any} */ (
        Object.fromEntries([...this.attributes].map(({ name, value }) => [name, value]))
      );
      const client = shoal({ plan, to, key, limit: limit && +limit, ...this.options });
      client.send().catch(() => {}); // what waits from an earlier visit
      this.replaceChildren(form(await client.plan(), client, this));
    } catch (error) {
      this.#show(status, error);
    }
  }

  /**
   * @param {HTMLElement} status
   * @param {any} error
   */
  #show(status, error) {
    status.setAttribute("role", "alert");
    status.textContent = error.name == ERROR ? error.message : "no response from the collector.";
    this.dispatchEvent(new CustomEvent("shoal-error", { detail: error }));
  }
}

/**
 * @param {import("./plan.js").Plan} plan
 * @param {ReturnType<typeof shoal>} client
 * @param {ShoalSurvey} host gets the event `shoal-answer`
 */
const form = ({ survey }, client, host) => {
  const { title, text } = /** @type {any} */ (survey);
  const status = told();
  const given = /** @type {Record<string, any>} */ (host.answers);
  const known = survey.questions
    .filter(({ kind }) => kind != "cross")
    .map((question) => kinds[question.kind]?.(question) ?? question);
  const asked = known.filter((question) => !byDevice(question) && !(question.name in given));
  const unknown = known.find((question) => byDevice(question) && !(question.name in given));
  must(!unknown, `the page has to answer question ${unknown?.name} itself.`);
  const fields = asked.map((question, place) => {
    const { title, text, name } = /** @type {any} */ (question);
    const id = `shoal-${place}`;
    const words = text ?? title ?? name;
    return grouped(question)
      ? element("fieldset", {}, element("legend", {}, words), ...inputs(question, id))
      : element("p", {}, element("label", { for: id }, words), " ", ...inputs(question, id));
  });
  const made = /** @type {HTMLFormElement} */ (
    element(
      "form",
      {},
      ...(title ? [element("h2", {}, title)] : []),
      ...(text ? [element("p", {}, text)] : []),
      ...fields,
      element("p", {}, sentences.promise),
      element("button", {}, sentences.send),
      status,
    )
  );
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const data = new FormData(made);
    try {
      const answers = Object.fromEntries(
        asked.map((question, place) => [question.name, answerOf(question, data.getAll(`shoal-${place}`))]),
      );
      const { isNew } = await client.answer({ ...answers, ...given });
      const tickets = await client.send();
      const state = tickets.at(-1)?.state == "sent" ? "sent" : "waiting";
      status.textContent = sentences[isNew ? state : "again"];
      for (const control of made.elements) control.setAttribute("disabled", "");
      host.dispatchEvent(new CustomEvent("shoal-answer", { detail: { isNew, state } }));
    } catch (error) {
      status.textContent = /** @type {Error} */ (error).message;
    }
  });
  return made;
};

customElements.define("shoal-survey", ShoalSurvey);
