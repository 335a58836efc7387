"""The relay: whom it mixes, what it forwards, and whose key it believes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

OPEN_PLAN = "server/relay/open_plan.py"
FORWARDING = "server/relay/forwarding.py"
TESTS = "server/relay/test_relay.py"
FORWARDED = "server/relay/test_forwarding.py"
SHARED = "server/relay/test_shared.py"
SHARED_STORE = "server/relay/postgres_store.py"
SHARED_CROWD = "server/relay/postgres_crowd.py"

MUTANTS = (
    Mutant(
        "messages are forwarded in their order",
        "server/relay/shuffling.py",
        "yield messages[permutation(len(messages))]",
        "yield messages",
        "server/relay/test_shuffling.py::test_every_order_is_equally_likely",
    ),
    Mutant(
        "a crowd is frozen one report early",
        "server/relay/encrypted_pool.py",
        "return self.reports == self._needed",
        "return self.reports >= self._needed - 1",
        f"{FORWARDED}::TestOrder::test_nothing_leaves_before_the_crowd_is_whole {TESTS}",
    ),
    Mutant(
        "a refused crowd is shuffled and cut anew",
        FORWARDING,
        "        chunks = crowd.chunks\n",
        "        chunks = crowd.chunks and await self._shuffle(crowd, key) or crowd.chunks\n",
        f"{FORWARDED}::TestRefusals",
    ),
    Mutant(
        "reports for two keys are mixed in a crowd",
        OPEN_PLAN,
        "elif upload.key != crowd.digest or len(taken) == room:",
        "elif len(taken) == room:",
        f"{TESTS}::TestKeys::test_only_the_key_of_the_open_crowd",
    ),
    Mutant(
        "the key is looked at before the report is known",
        OPEN_PLAN,
        "                is_known = next(known) or name in taken\n",
        "                is_known = next(known) or name in taken\n"
        "                is_known &= crowd is not None and upload.key == crowd.digest\n",
        f"{TESTS}::TestOnce::test_a_report_that_was_accepted_is_known_whatever_its_key",
    ),
    Mutant(
        "a key that the pinned key did not sign is used",
        "server/relay/analyzer_client.py",
        "            if self._pinned == known:\n                raise\n"
        "            check_signature(self._pinned, reply.content, signature, what)\n",
        "",
        f"{FORWARDED}::TestPinning::test_a_key_that_is_not_pinned_is_not_used",
    ),
    Mutant(
        "a link that the pinned key did not sign is followed",
        "server/relay/analyzer_client.py",
        '                check_signature(pinned, link_content(newest), link.get("signature"))\n',
        "",
        f"{FORWARDED}::TestPinning::test_a_link_that_the_pinned_key_did_not_sign_leads_nowhere",
    ),
    Mutant(
        "open crowds keep the signatures of the key before",
        "server/relay/open_plan.py",
        "if crowd.signed.signer != signers and not crowd.rows.is_whole",
        "if False",
        f"{FORWARDED}::TestPinning::test_a_change_reaches_every_document_and_so_does_its_end",
    ),
    Mutant(
        "documents keep the signatures of the key before",
        "server/relay/key_prefetch.py",
        "if by == signers and now - fetched < REFRESH_SECONDS:",
        "if by and now - fetched < REFRESH_SECONDS:",
        f"{FORWARDED}::TestPinning::test_a_change_reaches_every_document_and_so_does_its_end",
    ),
    Mutant(
        "a receipt for something else is believed",
        "server/relay/analyzer_client.py",
        "if {name: receipt.get(name) for name in expected} != expected:",
        "if False:",
        f"{FORWARDED}::TestRefusals::test_a_crowd_is_never_cut_anew",
    ),
    Mutant(
        "words that are equal decide an order",
        "server/relay/shuffling.py",
        "if not (ordered[1:] == ordered[:-1]).any():",
        "if True:",
        "server/relay/test_shuffling.py::test_equal_words_are_drawn_again",
    ),
    Mutant(
        "a shuffle counts whose chunks are not all in the database",
        SHARED_STORE,
        '" AND (SELECT count(*) FROM chunks WHERE number = ? AND attempt = ?) = ?"',
        '" AND (SELECT count(*) FROM chunks WHERE number = ? AND attempt = ?) <= ?"',
        f"{SHARED}::TestForwarding::test_a_shuffle_that_another_one_removed",
    ),
    Mutant(
        "chunks of another shuffle are forwarded",
        SHARED_STORE,
        ' ON crowds.number = chunks.number AND crowds.attempt = chunks.attempt"',
        ' ON crowds.number = chunks.number"',
        f"{SHARED}::TestForwarding::test_two_shuffles_of_a_crowd",
    ),
    Mutant(
        "chunks that are forwarded are removed by who begins another shuffle",
        SHARED_STORE,
        " (SELECT number FROM crowds WHERE number = ? AND state = 'frozen') LIMIT",
        " (SELECT number FROM crowds WHERE number = ?) LIMIT",
        f"{SHARED}::TestForwarding::test_a_shuffle_begun_when_another_one_counts",
    ),
    Mutant(
        "a shuffle is stated while another relay removes it",
        SHARED_STORE,
        "        attempt = self._attempts.pop(crowd.number)\n"
        "        with self._transaction(alone=False):\n"
        "            self._lock_plan(crowd.plan_id)\n",
        "        attempt = self._attempts.pop(crowd.number)\n"
        "        with self._transaction(alone=False):\n",
        f"{SHARED}::TestForwarding::test_one_at_a_time_states_or_removes_a_shuffle",
    ),
    Mutant(
        "a crowd that another relay has under way is taken",
        SHARED_STORE,
        "        if not is_free:\n            return None\n",
        "",
        f"{SHARED}::TestForwarding::test_claims",
    ),
    Mutant(
        "what another relay took is not counted",
        SHARED_CROWD,
        "            crowd._follow(content)\n",
        "            pass\n",
        f"{SHARED}::TestReports",
    ),
    Mutant(
        "relays write to each other's rows",
        SHARED_CROWD,
        "            self._follow(row[0])\n\n",
        "            super()._read()\n            self._follow(row[0])\n\n",
        f"{SHARED}::TestReports",
    ),
    Mutant(
        "a report that came at another relay is not recognized",
        OPEN_PLAN,
        "            seen.catch_up()\n",
        "            pass\n",
        f"{SHARED}::TestReports",
    ),
    Mutant(
        "a relay opens the database of a collector",
        "server/storage/postgres/schema.py",
        "    if word != schema.word:\n",
        "    if False:\n",
        f"{SHARED}::TestWhoseDatabase",
    ),
    Mutant(
        "anybody can have a relay's database asked for names",
        "server/relay/refresh.py",
        "can_be_told = lookups.take(1)",
        "can_be_told = True",
        f"{SHARED}::test_plans_that_somebody_made_up_are_soon_not_asked_for",
    ),
    Mutant(
        "chunks leave before standbys know which ones they are",
        "server/relay/forwarding.py",
        "        await self._in_store(self._store.check)\n",
        "",
        "server/relay/test_shared.py::TestForwarding"
        "::test_no_chunk_leaves_before_a_commit_has_arrived",
    ),
    Mutant(
        "a commit that standbys may lack is believed",
        "server/storage/postgres/connection.py",
        'self._warned |= diagnostic.severity_nonlocalized == "WARNING"',
        "pass",
        "server/relay/test_shared.py::TestReports::test_a_warned_commit_is_not_believed",
    ),
    Mutant(
        "a plan that cannot be looked up is unknown",
        "server/relay/refresh.py",
        "can_be_told = False  # it may have been published",
        "pass",
        "server/relay/test_shared.py::test_plans_that_somebody_made_up_are_soon_not_asked_for",
    ),
)
