import { shoal } from "./shoal.js";
import { encode } from "./src/answers.js";
import { randomize } from "./src/random.js";
import { layout } from "./src/survey.js";

const HEAD = 62; // bytes before the bits of a report
const ASK_EVERY = 400; // milliseconds

const find = (id) => document.getElementById(id);
const show = (id, text) => {
  find(id).hidden = false;
  if (text != null) find(id).textContent = text;
};
const whole = (number) => Math.round(number).toLocaleString("en");

/** @returns {HTMLElement} */
function made(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function drawn(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// 1. You answer

function field({ kind, name, options }) {
  const type = kind == "choice" ? "radio" : "checkbox";
  const inputs = options.map((value) =>
    made("label", {}, made("input", { type, name, value, required: type == "radio" }), ` ${value}`),
  );
  return made("fieldset", {}, made("legend", { textContent: name }), ...inputs);
}

function given(questions) {
  const data = new FormData(find("survey"));
  return Object.fromEntries(
    questions.map(({ kind, name }) => [name, kind == "flags" ? data.getAll(name) : data.get(name)]),
  );
}

// 2. What left this browser

/** What is done with the bytes of a report when they leave. */
let onReport = (body) => {};

/** Makes a request of the client, and shows it first. */
function noted(url, options) {
  const item = made("li", {}, made("code", { textContent: `${options.method} ${url}` }));
  if (options.body) {
    const digits = Array.from(options.body, (byte) => byte.toString(16).padStart(2, "0")).join("");
    item.append(`${options.body.length} bytes: `, made("code", { textContent: digits }));
    onReport(options.body);
  }
  find("requests").append(item);
  return fetch(url, options);
}

const isSet = (row, place) => (row[place >> 3] >> (place & 7)) & 1;

/** Shows the bits of an answer beside those of a report, and returns how many differ. */
function showBits(questions, row, sent) {
  const labels = questions.flatMap(({ name, options }) => options.map((one) => `${name}: ${one}`));
  const rows = labels.map((label, place) => {
    const [before, after] = [isSet(row, place), isSet(sent, place)];
    return made(
      "tr",
      { className: before == after ? "" : "flipped" },
      made("th", { scope: "row", textContent: label }),
      made("td", { className: "n", textContent: before }),
      made("td", { className: "n", textContent: after }),
      made("td", { textContent: before == after ? "" : "flipped" }),
    );
  });
  find("bits").replaceChildren(...rows);
  return rows.filter(({ className }) => className).length;
}

/** Shows the report that was sent, and other draws of the same answer on request. */
function showReport(questions, row, bits, sent, q, flips) {
  const flipped = showBits(questions, row, sent);
  const none = (1 - q) ** bits;
  show(
    "flips",
    `This browser flipped each bit of your answer with probability ${q.toFixed(3)}: ${flipped} of ${bits} this time.` +
      ` ${(100 * none).toFixed(0)} % of all reports have no flipped bit. Only the sent bits left this browser, with a` +
      " random id that distinguishes reports.",
  );
  find("again").onclick = () => {
    const other = showBits(questions, row, randomize(row, bits, flips));
    find("bits-caption").textContent = "Your answer as bits, and another draw, which is not sent";
    find("report-head").textContent = "draw";
    show("other-draw", `Another draw: ${other} of ${bits} bits flipped. Your report, which had ${flipped}, stays as it is.`);
  };
  show("left");
}

// 3. Everybody else

function showProgress({ progress, early }) {
  find("bar").value = progress;
  const text = `about ${progress} % complete`;
  if (find("progress").textContent != text) show("progress", text);
  show(
    "early",
    `Asked for the estimates now, the collector answers ${early}. For an incomplete crowd it reveals only the progress, rounded to 10 %.`,
  );
}

// 4. The crowd's answer

function line({ low, high, count, truth }, most) {
  const at = (people) => `${Math.max(0, Math.min(100, (100 * people) / most))}%`;
  return drawn(
    "svg",
    { class: "chart", "aria-hidden": "true" },
    drawn("line", { class: "interval", x1: at(low), x2: at(high), y1: "50%", y2: "50%" }),
    drawn("circle", { class: "accent", cx: at(count), cy: "50%", r: 4 }),
    drawn("line", { class: "truth", x1: at(truth), x2: at(truth), y1: "10%", y2: "90%" }),
  );
}

function table(question, options, most) {
  const heads = ["", "truth", "estimate", "95 % interval", ""].map((textContent) =>
    textContent ? made("th", { scope: "col", textContent, className: "n" }) : made("td"),
  );
  const rows = Object.entries(options).map(([label, row]) =>
    made(
      "tr",
      {},
      made("th", { scope: "row", textContent: label }),
      made("td", { className: "n", textContent: whole(row.truth) }),
      made("td", { className: "n", textContent: whole(row.count) }),
      made("td", {
        className: "n",
        textContent: `${whole(Math.floor(row.low))} to ${whole(Math.ceil(row.high))}`,
      }),
      made("td", { className: "drawn" }, line(row, most)),
    ),
  );
  const scroll = made(
    "div",
    { className: "scroll", tabIndex: 0, role: "region", ariaLabel: question },
    made(
      "table",
      { className: "estimates" },
      made("caption", {}, made("span", { textContent: `${question}, in people` })),
      made("thead", {}, made("tr", {}, ...heads)),
      made("tbody", {}, ...rows),
    ),
  );
  return scroll;
}

function showResults({ questions, reports, seat }, promise) {
  find("bar").value = 100;
  show("progress", "complete");
  find("early").hidden = true;
  const tables = Object.entries(questions).map(([name, options]) => table(name, options, reports));
  find("tables").replaceChildren(...tables);
  show(
    "complete",
    `${whole(reports)} reports, ${seat == "yours" ? "yours" : "another visitor's"} among them. The rate of the flips is` +
      ` known, so their effect is taken out of the counts. The promise: ${promise}. The truth is that of the` +
      ` ${whole(reports - 1)} simulated people; this program does not know the visitor's answer.`,
  );
  show("results");
}

/** Fetches the state of the crowd, and whether its one seat for a visitor is free, yours or taken. */
const crowdState = async () => (await fetch(`/state.json?visitor=${localStorage.visitor}`)).json();

const TAKEN = "Another visitor answered first, and this crowd has one visitor. Watch it fill, or run the demonstration again to take part.";

/** Shows a crowd whose visitor is somebody else. */
async function watch(promise) {
  find("survey").hidden = true;
  show("told", TAKEN);
  await follow(promise);
}

/** Asks how the crowd is doing until it is complete. */
async function follow(promise) {
  show("crowd");
  for (;;) {
    const state = await crowdState();
    if (state.state == "failed") return show("told", `The demonstration ended: ${state.reason}`);
    if (state.state == "complete") return showResults(state, promise);
    showProgress(state);
    await new Promise((resolve) => setTimeout(resolve, ASK_EVERY));
  }
}

/** A browser answers a plan once. What it remembers of another demonstration at this address goes. */
async function forget(run) {
  if (localStorage.run == run) return;
  await new Promise((resolve, reject) =>
    Object.assign(indexedDB.deleteDatabase("shoal"), { onsuccess: resolve, onerror: reject }),
  );
  localStorage.run = run;
  localStorage.visitor = crypto.randomUUID();
}

async function begin() {
  const { client, run, promise, crowd, q, flips } = await (await fetch("/settings.json")).json();
  await forget(run);
  const survey = shoal({ ...client, fetch: noted });
  const { survey: asked, localEpsilon } = await survey.plan();
  show(
    "opening",
    `A browser maker wants to know what a crowd of ${whole(crowd)} people uses, and should learn little about` +
      " any one of them. You are one of them; the others are simulated.",
  );
  find("alone").textContent =
    `An observer of this one report, such as the collector, can shift the odds between two answers by a factor of up` +
    ` to e^${localEpsilon.toFixed(1)}, about ${whole(Math.exp(localEpsilon))} (the local epsilon). An observer of the` +
    " crowd's results learns far less.";
  find("others").textContent =
    `Now ${whole(crowd - 1)} simulated people answer. Each has a device of their own, which flips its bits as` +
    " yours did and sends its report to the same collector.";
  find("questions").replaceChildren(...asked.questions.map(field));
  show("survey");

  const send = async () => {
    const [ticket] = await survey.send();
    if (!ticket) return;
    find("survey").hidden = true;
    if (ticket.state != "sent") {
      show("told", `Your report waits in this browser (${ticket.reason ?? "it will be retried soon"}).`);
      setTimeout(send, 1000);
      return;
    }
    show("told", "The collector has counted your report, and keeps no report.");
    await fetch(`/begin?visitor=${localStorage.visitor}`, { method: "POST" });
    await follow(promise);
  };
  find("survey").addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const answer = given(asked.questions);
      const blocks = layout(asked);
      const row = await encode(asked, blocks, answer, null);
      onReport = (body) => showReport(asked.questions, row, blocks[1], body.slice(HEAD), q, flips);
      const seat = await fetch(`/seat?visitor=${localStorage.visitor}`, { method: "POST" });
      if ((await seat.json()).seat != "yours") return await watch(promise);
      await survey.answer(answer);
      await send();
    } catch (error) {
      show("told", error.message);
    }
  });
  // An answer of an earlier visit; what it was, the browser has forgotten.
  const { seat } = await crowdState();
  await (seat == "taken" ? watch(promise) : send());
}

begin().catch((error) => show("opening", `This browser cannot take part: ${error.message}`));
