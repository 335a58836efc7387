/**
 * Dates, arms, retention and funnels, for pages whose plans ask them:
 * `Object.assign(kinds, moreKinds)`, with `kinds` of `shoal.js`.
 */
export { moreKinds } from "./src/kinds.js";
