"""Telemetry: consent, one report per window, and the log of what left."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CONSENT = "device/telemetry/state.py"
LOG = "device/telemetry/log.py"
PROMPT = "device/telemetry/commands.py"
SURROUNDINGS = "device/telemetry/environment.py"
TELEMETRY = "device/telemetry/telemetry.py"
WORKER = "device/telemetry/worker.py"

MUTANTS = (
    # Consent
    Mutant(
        "what happens before a yes is written down",
        TELEMETRY,
        'if choice == "yes":\n                self._write([line])',
        'if choice != "no":\n                events.append_event(str(self.folder), 0, line)',
        "device/test_telemetry.py::TestConsent::test_nothing_is_written_before_a_yes",
    ),
    Mutant(
        "a yes to one plan is a yes to another",
        CONSENT,
        "if agreed == agreement and window.isdigit()",
        "if window.isdigit()",
        "device/test_telemetry.py::TestConsent::test_the_name_of_a_folder_proves_nothing",
    ),
    Mutant(
        "a yes is not to an address",
        CONSENT,
        'fields = f"to: {to}\\nlimit',
        'fields = f"to: \\nlimit',
        "device/test_telemetry.py::TestConsent"
        "::test_a_yes_is_to_one_plan_one_address_and_one_limit",
    ),
    Mutant(
        "a no is forgotten",
        CONSENT,
        "if os.path.exists(os.path.join(home, _OFF)):",
        "if False:",
        "device/test_telemetry.py::TestConsent::test_a_no_is_for_good",
    ),
    Mutant(
        "DO_NOT_TRACK is not looked at",
        SURROUNDINGS,
        'if _is_set("DO_NOT_TRACK", environ):',
        "if False:",
        "device/test_telemetry.py::TestConsent::test_what_speaks_against_it_wins",
    ),
    Mutant(
        "a service that tests is taken for a person",
        SURROUNDINGS,
        "for name in CI_VARIABLES:",
        "for name in CI_VARIABLES[1:]:",
        "device/test_telemetry.py::TestConsent::test_what_speaks_against_it_wins",
    ),
    Mutant(
        "a variable turns it on",
        TELEMETRY,
        "        if self.why_off() is not None:\n",
        '        if self.environ.get(surroundings.switch_name(self.tool)) == "1":\n'
        '            return "yes"\n'
        "        if self.why_off() is not None:\n",
        "device/test_telemetry.py::TestConsent::test_no_variable_turns_it_on",
    ),
    Mutant(
        "an empty answer is a yes",
        PROMPT,
        'in ("y", "yes"):',
        'in ("y", "yes", ""):',
        "device/test_telemetry.py::TestTerminal::test_anything_else_is_no",
    ),
    Mutant(
        "whoever turns it off is not heard by the process that sends",
        LOG,
        "if not self._permitted():",
        "if False:",
        "device/test_telemetry_worker.py::TestTurnedOff::test_between_making_and_sending",
    ),
    Mutant(
        "the process that sends does not look whether it may",
        WORKER,
        "        if not self.permitted():\n            return\n",
        "",
        "device/test_telemetry.py::TestConsent::test_what_speaks_against_it_wins"
        " device/test_telemetry_worker.py::test_the_worker_alone_has_nothing_to_do",
    ),
    # One report per window
    Mutant(
        "the open window is reported",
        WORKER,
        "if one != window)",
        "if one <= window)",
        "device/test_telemetry_worker.py::TestWindows"
        "::test_one_report_of_all_that_happened_in_a_window",
    ),
    Mutant(
        "what happened after the clock was set back is lost",
        WORKER,
        "if window in reported or self._is_quiet(terms):",
        "if self._is_quiet(terms):",
        "device/test_telemetry_worker.py::TestWindows"
        "::test_a_plan_for_several_reports_still_gets_one",
    ),
    Mutant(
        "a second report after everything was deleted",
        WORKER,
        "if window in reported or self._is_quiet(terms):",
        "if window in reported:",
        "device/test_telemetry_worker.py::TestTurnedOff::test_deleted_and_turned_on_in_one_window",
    ),
    Mutant(
        "events are reported again after a crash",
        WORKER,
        "if int(taken.suffix[1:]) in reported:",
        "if False:",
        "device/test_telemetry_worker.py::TestCrashes::test_killed_and_found_a_window_later",
    ),
    Mutant(
        "events are deleted before their report is stored",
        WORKER,
        "            answer = merge(plan.survey, read_events(mine.read_bytes()))\n",
        "            content = mine.read_bytes()\n"
        "            mine.unlink()\n"
        "            mine.touch()\n"
        "            answer = merge(plan.survey, read_events(content))\n",
        "device/test_telemetry_worker.py::TestCrashes::test_killed_anywhere",
    ),
    # What a person is shown
    Mutant(
        "bytes leave before they are written down",
        LOG,
        "            self._log.sent(piece)\n            send(piece)\n",
        "            send(piece)\n            self._log.sent(piece[:1])\n",
        "device/test_telemetry_worker.py::TestShow::test_it_is_what_the_server_received",
    ),
    Mutant(
        "the network is used within the tool",
        TELEMETRY,
        "        self._child = spawning.spawn(words, self.environ)\n",
        "        import socket\n\n        socket.socket().close()\n"
        "        self._child = spawning.spawn(words, self.environ)\n",
        "device/test_telemetry.py::TestProcesses::test_a_due_report_is_sent_by_another_process",
    ),
    Mutant(
        "the factor that a person reads is rounded down",
        "device/telemetry/describe.py",
        "return text_up(math.nextafter(math.exp(epsilon), math.inf), 3)",
        'return f"{math.exp(epsilon) * 0.99:.3g}"',
        "device/test_telemetry.py::test_the_factor_that_is_shown_by_enumeration",
    ),
)
