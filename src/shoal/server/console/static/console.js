// Sliders beside the numbers of the planner; without this script the numbers are typed.
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
