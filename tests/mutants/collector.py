"""The collector: what it counts, keeps, shows, and whom it lets in."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

STORE = "collector/intake/store.py"
OPEN_PLAN = "collector/intake/open_plan.py"
DUPLICATES = "collector/intake/duplicates.py"
ENCRYPTION = "collector/intake/encryption.py"
TOKENS = "collector/console/tokens.py"

MUTANTS = (
    Mutant(
        "a repeated report is counted again",
        DUPLICATES,
        "fresh[first] = ~self._digests.contain(ordered)",
        "fresh[first] = True",
        "collector/test_store.py::TestDuplicates::test_in_one_upload",
    ),
    Mutant(
        "a report that is twice in an upload is counted twice",
        DUPLICATES,
        "fresh[first] = ~self._digests.contain(ordered)",
        "fresh[:] = ~self._digests.contain(digests)",
        "collector/test_store.py::TestDuplicates::test_in_one_upload",
    ),
    Mutant(
        "which reports came is not written",
        DUPLICATES,
        "        self._write(digests[fresh], len(digests))\n",
        "",
        "collector/test_store.py::TestDuplicates::test_across_commits_and_crowds",
    ),
    Mutant(
        "digests of ids without a key",
        DUPLICATES,
        "digest_size=16, key=key)",
        "digest_size=16)",
        "collector/test_store.py::TestDuplicates::test_digests_say_nothing_about_ids",
    ),
    Mutant(
        "repeated reports write less",
        DUPLICATES,
        "self._write(digests[fresh], len(digests))",
        "self._write(digests[fresh], max(int(fresh.sum()), 1))",
        "collector/test_timing.py::test_repeated_reports_write_as_much_to_the_disk",
    ),
    Mutant(
        "nothing is written for a repeated report",
        OPEN_PLAN,
        "            chosen = None if cohorts is None else cohorts[here]\n            self._fill(",
        "            if not fresh.any():\n                continue\n"
        "            chosen = None if cohorts is None else cohorts[here]\n            self._fill(",
        "collector/test_timing.py::test_repeated_reports_write_as_much_to_the_disk",
    ),
    Mutant(
        "an answer that opens a crowd takes longer",
        OPEN_PLAN,
        "        if not opened:\n            self._pretend_to_open(window, day)\n",
        "",
        "collector/test_store.py::TestSealing::test_every_commit_does_the_work_of_opening_a_crowd",
    ),
    Mutant(
        "a crowd is sealed one report early",
        "collector/intake/open_crowd.py",
        "return self.reports == self._plan.reports_needed",
        "return self.reports >= self._plan.reports_needed - 1",
        "collector/test_store.py::TestSealing::test_exactly_at_the_crowd",
    ),
    Mutant(
        "a crowd takes one report more",
        OPEN_PLAN,
        "room = self.plan.reports_needed - crowd.counts.reports",
        "room = self.plan.reports_needed + 1 - crowd.counts.reports",
        "collector/test_store.py::TestSealing::test_the_sealing_is_told_once_and_after_the_commit",
    ),
    Mutant(
        "the last report of a crowd waits for its sealing",
        OPEN_PLAN,
        "        if not opened:\n",
        '        self.seal_crowds(Time.of(self.plan, day * 86_400.0)) if opened else ""\n'
        "        if not opened:\n",
        "collector/test_store.py::TestSealing::test_no_answer_waits_for_the_sealing",
    ),
    Mutant(
        "the order of reports says who fills a crowd",
        OPEN_PLAN,
        "here[np.argsort(np.frombuffer(SystemBits().draw(8 * len(here)), np.uint64))]",
        "here[np.arange(len(here))]",
        "collector/test_store.py::TestSealing::test_chance_says_which_reports_fill_the_crowd",
    ),
    Mutant(
        "the count of an open crowd is shown",
        "collector/intake/records.py",
        'reports if state == "sealed" else None',
        "reports",
        "collector/test_store.py::TestSealing::test_exactly_at_the_crowd",
    ),
    Mutant(
        "progress in hundredths",
        OPEN_PLAN,
        "10 * crowd.counts.reports // self.plan.reports_needed",
        "100 * crowd.counts.reports // self.plan.reports_needed",
        "collector/test_store.py::TestDeadline::test_tenths_round_down",
    ),
    Mutant(
        "a report of a window that is over is counted",
        OPEN_PLAN,
        "if first < max(time.first_window, self.oldest_window):",
        "if first < self.oldest_window:",
        "collector/test_store.py::TestWindows::test_last_this_and_next",
    ),
    Mutant(
        "a forgotten window opens again",
        OPEN_PLAN,
        "if first < max(time.first_window, self.oldest_window):",
        "if first < time.first_window:",
        "collector/test_store.py::TestWindows::test_a_forgotten_window_stays_closed",
    ),
    Mutant(
        "a crowd mixes windows",
        OPEN_PLAN,
        "here = np.flatnonzero(windows == window)",
        "here = np.arange(len(windows))",
        "collector/test_store.py::TestCrowdsOfWindows::test_no_release_mixes_windows",
    ),
    Mutant(
        "an answer before the disk has the report",
        "collector/intake/database.py",
        'connection.execute("PRAGMA synchronous = FULL")',
        'connection.execute("PRAGMA synchronous = OFF")',
        "collector/test_store.py::TestFile::test_settings_of_the_connection",
    ),
    Mutant(
        "what was deleted stays in the file",
        "collector/intake/database.py",
        'connection.execute("PRAGMA secure_delete = ON")',
        'connection.execute("PRAGMA secure_delete = OFF")',
        "collector/test_store.py::TestRemains",
    ),
    Mutant(
        "an answer before the commit",
        STORE,
        "                    plan.count(counted, time)\n        return answers",
        "                    plan.count(counted, time)\n"
        '            self._database.execute("ROLLBACK")\n'
        '            self._database.execute("BEGIN")\n'
        "        return answers",
        "collector/test_store.py::TestCounts::test_a_restart_changes_nothing",
    ),
    Mutant(
        "the key of a sealed crowd is kept",
        OPEN_PLAN,
        '        self._keys.forget(self.plan.id, "crowd", crowd.number)\n',
        "",
        "collector/test_encryption.py::test_the_key_of_a_crowd_goes_with_it",
    ),
    Mutant(
        "the file's key is not drawn anew",
        ENCRYPTION,
        'self._by_generation.get(before, b""), SystemBits().draw(32)',
        'self._by_generation.get(before, b""), '
        "self._by_generation.get(before) or SystemBits().draw(32)",
        "collector/test_encryption.py::test_a_copy_from_before_the_sealing_cannot_be_read_after_it",
    ),
    Mutant(
        "counts encrypted under one salt",
        ENCRYPTION,
        "salts = SystemBits().draw(_SALT * len(pieces))",
        "salts = bytes(_SALT * len(pieces))",
        "collector/test_encryption.py::test_steps_of_the_log_tell_no_report",
    ),
    Mutant(
        "an old copy of the data is taken for today's",
        ENCRYPTION,
        "if self._generation() not in self._by_generation or without_log not in self._unlogged:",
        "if self._generation() not in self._by_generation:",
        "collector/test_consistency.py::test_every_combination_of_lost_and_old_files",
    ),
    Mutant(
        "open crowds are in the backup",
        "collector/backup.py",
        '        if state == "open":\n',
        "        if False:\n",
        "collector/test_backup.py::TestBackup::test_what_was_released_comes_back",
    ),
    Mutant(
        "the key of open crowds is in the backup",
        "collector/backup.py",
        "key = (folder / KEY_FILE).read_text()",
        "key = (folder / KEY_FILE).read_text() + (folder / CROWD_KEY_FILE).read_text()",
        "collector/test_backup.py::TestBackup::test_nothing_of_an_open_crowd_is_in_it",
    ),
    Mutant(
        "a restored plan without a window takes reports",
        "collector/consistency.py",
        "UPDATE plans SET state = 'closed' WHERE id = ?",
        "UPDATE plans SET state = state WHERE id = ?",
        "collector/test_backup.py::TestRestore::test_what_becomes_of_each_plan",
    ),
    Mutant(
        "a restored plan takes reports of this window",
        "collector/consistency.py",
        "now // plan.window + 2",
        "now // plan.window + 1",
        "collector/test_backup.py::TestRestore::test_what_becomes_of_each_plan",
    ),
    Mutant(
        "a clock that jumps is believed",
        "collector/clock.py",
        "is_held = abs(wall - steady) > STEP",
        "is_held = False",
        "collector/test_clock.py::TestGuardedClock::test_a_jump_is_not_believed_and_going_back_is",
    ),
    Mutant(
        "a clock that jumped while the machine was off is believed",
        "collector/clock.py",
        "if last.seconds - STEP <= wall <= last.seconds + LONGEST_OUTAGE:",
        "if last.seconds - STEP <= wall:",
        "collector/test_clock.py::TestGuardedClock::test_a_machine_that_was_off",
    ),
    Mutant(
        "windows are destroyed right after a boot",
        STORE,
        "                if self._may_destroy:\n",
        "                if True:\n",
        "collector/test_clock.py::TestCollector::test_nothing_is_destroyed_right_after_a_boot",
    ),
    Mutant(
        "any role may do anything",
        "collector/console/requests.py",
        "if not token.may(role) or out_of_scope:",
        "if out_of_scope:",
        "collector/test_access.py::test_every_operation_with_every_role",
    ),
    Mutant(
        "an admin's token sends reports",
        TOKENS,
        "if (self.role in _SENDERS) != (role in _SENDERS):",
        "if False:",
        "collector/test_access.py::test_reports_need_an_apps_token_if_so_set",
    ),
    Mutant(
        "a token that has ended",
        TOKENS,
        "if match is not None and not self.has_ended(match):",
        "if match is not None:",
        "collector/test_observability.py::TestTokens::test_its_last_day",
    ),
    Mutant(
        "a token of some plans looks at others",
        "collector/console/requests.py",
        "if not token.may(role) or out_of_scope:",
        "if not token.may(role):",
        "collector/test_observability.py::TestTokens::test_some_plans_only",
    ),
    Mutant(
        "a token of some plans sends to others",
        "collector/intake/ingest.py",
        'not token.may("app") or not token.covers(plan_id)',
        'not token.may("app")',
        "collector/test_observability.py::TestTokens::test_some_plans_only",
    ),
    Mutant(
        "a page elsewhere changes things",
        "collector/console/requests.py",
        'if request.headers.get("sec-fetch-site") != "same-origin":',
        'if request.headers.get("sec-fetch-site") == "cross-site":',
        "collector/test_sessions.py::test_another_port_changes_nothing",
    ),
    Mutant(
        "one connection fills a crowd",
        "collector/intake/limits.py",
        "return limits.of_connection - self._reports.get(plan_id, 0)",
        "return limits.of_connection",
        "collector/test_limits.py::TestConnections::test_one_fills_no_more_than_its_share",
    ),
    Mutant(
        "one request fills a crowd",
        "collector/intake/ingest.py",
        "if count > limits.of_request:",
        "if False:",
        "collector/test_limits.py::TestSizes::test_json_is_for_a_few",
    ),
    Mutant(
        "a body without an end is read",
        "collector/http.py",
        "        if size > largest:\n",
        "        if False:\n",
        "collector/test_bad_input.py::test_an_endless_body_is_cut",
    ),
    Mutant(
        "a draft is told from nothing",
        "collector/service.py",
        "return None if record is None or record.certificate is None else record",
        "return record",
        "collector/test_access.py::test_a_draft_is_not_told_from_nothing",
    ),
)
