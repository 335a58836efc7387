/** Telemetry for tools in Node.js: off until a person says yes, then one randomized report per window. */
export { openTelemetry, Telemetry } from "./src/node/telemetry.js";
export { ShoalError } from "./src/bytes.js";
