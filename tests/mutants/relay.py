"""The relay: whom it mixes, what it forwards, and whose key it believes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

OPEN_PLAN = "collector/relay/open_plan.py"
FORWARDING = "collector/relay/forwarding.py"
TESTS = "collector/relay/test_relay.py"
FORWARDED = "collector/relay/test_forwarding.py"

MUTANTS = (
    Mutant(
        "messages are forwarded in their order",
        "collector/relay/shuffling.py",
        "yield messages[permutation(len(messages))]",
        "yield messages",
        "collector/relay/test_shuffling.py::test_every_order_is_equally_likely",
    ),
    Mutant(
        "a crowd is frozen one report early",
        "collector/relay/sealed_crowd.py",
        "return self.reports == self._needed",
        "return self.reports >= self._needed - 1",
        f"{FORWARDED}::TestOrder::test_nothing_leaves_before_the_crowd_is_whole {TESTS}",
    ),
    Mutant(
        "a refused crowd is shuffled and cut anew",
        FORWARDING,
        "        if chunks is None:\n",
        "        if True:\n",
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
        "collector/relay/analyzer.py",
        "            if newest == key:\n                raise\n"
        "            check_signature(newest, reply.content, signature, what)\n",
        "",
        f"{FORWARDED}::TestPinning::test_a_key_that_is_not_pinned_is_not_used",
    ),
    Mutant(
        "a receipt for something else is believed",
        "collector/relay/analyzer.py",
        "if {name: receipt.get(name) for name in expected} != expected:",
        "if False:",
        f"{FORWARDED}::TestRefusals::test_a_crowd_is_never_cut_anew",
    ),
    Mutant(
        "words that are equal decide an order",
        "collector/relay/shuffling.py",
        "if not (ordered[1:] == ordered[:-1]).any():",
        "if True:",
        "collector/relay/test_shuffling.py::test_equal_words_are_drawn_again",
    ),
)
