/** The tool's environment: may it send telemetry, and can a person be asked. */

/** Variables that CI services and test runners set: no person is present. */
const CI_VARIABLES = [
  "CI", "CONTINUOUS_INTEGRATION", "APPVEYOR", "BITBUCKET_BUILD_NUMBER", "BUILDKITE", "BUILD_NUMBER",
  "CIRCLECI", "CODEBUILD_BUILD_ID", "DRONE", "GITHUB_ACTIONS", "GITLAB_CI", "JENKINS_URL",
  "TEAMCITY_VERSION", "TF_BUILD", "TRAVIS", "PYTEST_CURRENT_TEST", "TOX_ENV_NAME",
];

const NO = ["0", "false", "no", "off"];

/** @param {string} tool */
export const switchName = (tool) => tool.toUpperCase().replace(/[^\p{L}\p{N}]/gu, "_") + "_TELEMETRY";

/**
 * The reason why telemetry is off in this run, if it is.
 *
 * @param {string} tool
 * @param {import("./files.js").Environ} environ
 */
export const whyOff = (tool, environ) => {
  const word = (/** @type {string} */ name) => (environ[name] ?? "").trim().toLowerCase();
  const isSet = (/** @type {string} */ name) => word(name) !== "" && !NO.includes(word(name));
  if (isSet("DO_NOT_TRACK")) return "DO_NOT_TRACK is set";
  const own = switchName(tool);
  if (NO.includes(word(own))) return `${own} is ${environ[own]?.trim()}`;
  const ci = CI_VARIABLES.find(isSet);
  return ci && `${ci} is set, so no person is at work here`;
};

/** Whether a person is at a terminal. */
export const canBeAsked = () => !!(process.stdin.isTTY && process.stderr.isTTY) && process.env.TERM != "dumb";
