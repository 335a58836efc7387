/**
 * For plans with a leader and a helper: `shoal({ ..., dap })`. Reports are split here into two
 * shares, each encrypted for one of them, neither of which tells anything by itself.
 */
export { dap } from "./src/dap.js";
