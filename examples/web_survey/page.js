import { shoal } from "./shoal.js";

const find = (id) => document.getElementById(id);
const settings = await (await fetch("settings.json")).json();

/** Shows a request before it is made. */
function noted(url, options) {
  const item = document.createElement("li");
  const code = document.createElement("code");
  code.textContent = `${options.method} ${new URL(url).pathname}`;
  item.append(code);
  if (options.body) {
    const bytes = document.createElement("code");
    bytes.textContent = Array.from(options.body, (byte) => byte.toString(16).padStart(2, "0")).join("");
    item.append(` with ${options.body.length} bytes: `, bytes);
    find("bits").textContent =
      `The last bytes are your report: each bit of your answer, flipped with probability ${flip}.`;
  }
  find("requests").append(item);
  return fetch(url, options);
}

const survey = shoal({ ...settings, fetch: noted });
let flip = "";

function field(question) {
  const group = document.createElement("fieldset");
  const legend = document.createElement("legend");
  legend.textContent = question.name;
  group.append(legend);
  const add = (type, value, text) => {
    const label = document.createElement("label");
    const input = Object.assign(document.createElement("input"), { type, name: question.name, value });
    label.append(input, ` ${text}`);
    group.append(label);
  };
  if (question.kind == "number") add("number", "", "minutes");
  for (const option of question.options ?? [])
    add(question.kind == "choice" ? "radio" : "checkbox", option, option);
  return group;
}

function answers(questions) {
  const given = new FormData(find("survey"));
  return Object.fromEntries(
    questions.map(({ kind, name }) => [name, kind == "flags" ? given.getAll(name) : given.get(name)]),
  );
}

function show(ticket) {
  const words = {
    waiting: `Your report waits in this browser${ticket.reason ? ` (${ticket.reason})` : ""}.`,
    sent: "Your report was accepted. Thank you.",
    expired: "The survey is over; your report was deleted.",
  };
  find("state").textContent = words[ticket.state];
  find("survey").hidden = true;
}

/** What waits from an earlier visit is sent, now and from time to time. */
async function sendWaiting() {
  for (const ticket of await survey.send()) show(ticket);
}

try {
  const { survey: asked, q, crowd_size, promise, localEpsilon } = await survey.plan();
  flip = `${(q[0] / 2 ** q[1]).toFixed(3)}`;
  find("promise").textContent =
    `Each bit of your answer is flipped with probability ${flip} before it leaves this browser. Whoever ` +
    `sees only the crowd of ${crowd_size} learns little about you (epsilon ${promise.epsilon}); the ` +
    `collector, who sees your report, more (local epsilon ${localEpsilon.toFixed(1)}).`;
  find("questions").append(...asked.questions.map(field));
  find("survey").hidden = false;
  find("survey").addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      show(await survey.answer(answers(asked.questions)));
      await sendWaiting();
    } catch (error) {
      find("state").textContent = error.message;
    }
  });
  await sendWaiting();
  addEventListener("online", sendWaiting);
  setInterval(sendWaiting, 60_000);
} catch (error) {
  find("promise").textContent = `This browser cannot take part: ${error.message}`;
}
