/** `<shoal-survey>`: the questions of a plan as an accessible form. */
export { sentences, ShoalSurvey } from "./src/form.js";
export { kinds } from "./src/survey.js";
