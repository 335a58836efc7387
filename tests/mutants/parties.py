"""Two parties: what is inside and outside sealed messages, and who seals again."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FRAGMENTS = "protocol/encryption.py"
SEALING = "device/encryption.py"
SENDING = "device/test_sealed_sending.py"
SENT = f"{SENDING}::TestSending"

MUTANTS = (
    Mutant(
        "the fragments of a report share an identifier",
        FRAGMENTS,
        "own = identifiers[ID_BYTES * place : ID_BYTES * (place + 1)]",
        "own = identifiers[:ID_BYTES]",
        f"protocol/test_sealing.py::TestFragments {SENT}::test_identifiers_are_all_different",
    ),
    Mutant(
        "the identifier inside is the one outside",
        SEALING,
        "contents = [pack_whole(bytes(identifier), row)]",
        "contents = [pack_whole(report_id, row)]",
        f"{SENT}::test_identifiers_are_all_different",
    ),
    Mutant(
        "fragments share an encapsulation",
        SEALING,
        'messages = b"".join(seal_message(content, public_key, info) for content in contents)',
        'one = seal_message(b"".join(contents), public_key, info)\n'
        '    messages = one.ljust(len(contents) * (len(contents[0]) + 48), b"\\0")',
        f"{SENT}::test_what_arrives_is_what_was_randomized",
    ),
    Mutant(
        "no dummies are sent",
        FRAGMENTS,
        "every = [*positions, *([DUMMY] * (messages - len(positions)))]",
        "every, messages = [*positions], len(positions)",
        f"protocol/test_sealing.py::TestFragments {SENT}",
    ),
    Mutant(
        "fragments are sent in the order of their positions",
        FRAGMENTS,
        "other = place + draw_below(messages - place, random_bits)",
        "other = place",
        "protocol/test_sealing.py::TestFragments::test_every_order_comes",
    ),
    Mutant(
        "the first set bits are sent where there are too many",
        SEALING,
        "positions.pop(draw_below(len(positions), source))",
        "positions.pop()",
        f"{SENDING}::TestFitting::test_a_random_excess_is_dropped",
    ),
    Mutant(
        "an excess of set bits is not dropped",
        SEALING,
        "    if excess <= 0:\n",
        "    if True:\n",
        f"{SENDING}::TestFitting",
    ),
    Mutant(
        "a report gets a new identifier when it is sealed again",
        SEALING,
        "key.digest, length, report_id + messages)",
        "key.digest, length, bytes(SystemBits().draw(16)) + messages)",
        f"{SENT}::test_a_complete_crowd_leaves_the_report_to_the_next_one",
    ),
    Mutant(
        "a report is sealed anew for each attempt",
        "device/outbox/retry.py",
        "if reply is None or (reply.status == KEY_CHANGED and record.crowds < MAX_CROWDS):",
        "if reply is None or reply.status != 202:",
        f"{SENT}::test_the_same_bytes_until_accepted",
    ),
    Mutant(
        "a report is encrypted for as many crowds as the relay wants",
        "device/outbox/retry.py",
        "crowds=record.crowds + 1)",
        "crowds=record.crowds)",
        f"{SENT}::test_a_report_is_encrypted_for_three_crowds_at_most",
    ),
    Mutant(
        "what is sealed is sent before it is stored",
        "device/outbox/retry.py",
        "            with self._folder.changing():\n"
        "                self._folder.store_waiting(name, record)\n"
        "            reply = transport",
        "            reply = transport",
        f"{SENT} {SENDING}::TestCrashes",
    ),
    Mutant(
        "a device without the analyzer's key takes the relay's word",
        "device/encryption.py",
        "    if transport.pinned_key is None:\n",
        "    if False:\n",
        f"{SENDING}::TestRefusals::test_no_pinned_key",
    ),
    Mutant(
        "the window is not bound to a message",
        "protocol/encryption.py",
        "bytes.fromhex(plan.id), window)",
        "bytes.fromhex(plan.id), 0)",
        "protocol/test_sealing.py::TestMessages",
    ),
)
