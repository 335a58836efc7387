package shoal

import (
	"fmt"
	"strings"
	"unicode"
)

// ciVariables are set by CI services and test runners: no person is present.
var ciVariables = []string{
	"CI", "CONTINUOUS_INTEGRATION", "APPVEYOR", "BITBUCKET_BUILD_NUMBER", "BUILDKITE", "BUILD_NUMBER",
	"CIRCLECI", "CODEBUILD_BUILD_ID", "DRONE", "GITHUB_ACTIONS", "GITLAB_CI", "JENKINS_URL",
	"TEAMCITY_VERSION", "TF_BUILD", "TRAVIS", "PYTEST_CURRENT_TEST", "TOX_ENV_NAME",
}

func isNo(value string) bool {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "0", "false", "no", "off":
		return true
	}
	return false
}

func switchName(tool string) string {
	return strings.Map(func(letter rune) rune {
		if unicode.IsLetter(letter) || unicode.IsNumber(letter) {
			return letter
		}
		return '_'
	}, strings.ToUpper(tool)) + "_TELEMETRY"
}

// whyOff is the reason why telemetry is off in this run, or empty.
func whyOff(tool string, environ func(string) string) string {
	isSet := func(name string) bool {
		value := environ(name)
		return strings.TrimSpace(value) != "" && !isNo(value)
	}
	if isSet("DO_NOT_TRACK") {
		return "DO_NOT_TRACK is set"
	}
	if name := switchName(tool); isNo(environ(name)) {
		return fmt.Sprintf("%s is %s", name, strings.TrimSpace(environ(name)))
	}
	for _, name := range ciVariables {
		if isSet(name) {
			return name + " is set, so no person is at work here"
		}
	}
	return ""
}
