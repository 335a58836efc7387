// Sliders beside the numbers of the planner, and rows of the builder. Without this script numbers
// are typed, and a button adds rows.
for (const input of document.querySelectorAll("input[data-low]")) {
  const low = Math.log(Number(input.dataset.low)), high = Math.log(Number(input.dataset.high));
  const slider = document.createElement("input");
  slider.type = "range";
  slider.min = "0";
  slider.max = "1000";
  slider.setAttribute("aria-label", input.closest("label").querySelector(".name").textContent + ", slider");
  const place = () => {
    const number = Number(input.value);
    if (number > 0) slider.value = String(Math.round(1000 * (Math.log(number) - low) / (high - low)));
  };
  slider.addEventListener("input", () => {
    const number = Math.exp(low + (high - low) * Number(slider.value) / 1000);
    input.value = input.name === "crowd" ? String(Math.round(Number(number.toPrecision(2))))
      : String(Number(number.toPrecision(2)));
  });
  input.addEventListener("input", place);
  place();
  input.after(slider);
}
for (const rows of document.querySelectorAll("[data-rows]")) {
  rows.addEventListener("input", () => {
    const all = rows.querySelectorAll(".row:has([name])"), last = all[all.length - 1];
    if ([...last.querySelectorAll("[name]")].every((input) => !input.value)) return;
    const next = last.cloneNode(true);
    for (const input of next.querySelectorAll("[name]")) input.value = "";
    last.after(next);
  });
}
for (const kind of document.querySelectorAll("select[name$='.kind']")) {
  kind.addEventListener("change", () => {
    const show = document.createElement("input");
    Object.assign(show, { type: "hidden", name: "do", value: "show" });
    kind.form.append(show);
    kind.form.submit();
  });
}
