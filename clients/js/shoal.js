/**
 * Answers are randomized here, in the browser, before anything leaves it.
 *
 * The way of one answer: `src/client.js` takes it, `src/plan.js` checks what is agreed on,
 * `src/answers.js` turns it into bits, `src/random.js` flips them, `src/store.js` keeps the report,
 * `src/wire.js` and `src/encryption.js` make the bytes that are sent.
 */
export { shoal } from "./src/client.js";
export { kinds } from "./src/survey.js";
export { ShoalError } from "./src/bytes.js";
