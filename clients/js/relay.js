/**
 * For plans with a relay: `shoal({ ..., relay })`. Reports are encrypted here, so that only the
 * analyzer behind the relay can read them.
 */
export { relay } from "./src/relay.js";
