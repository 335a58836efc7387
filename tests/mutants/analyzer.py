"""The analyzer: whom it takes chunks from, what it counts, and what it destroys."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

DOOR = "server/analyzer/endpoint.py"
PLAN = "server/analyzer/plan.py"
STORE = "server/analyzer/store.py"
SPILL = "server/analyzer/counting.py"
COUNTING = "server/analyzer/counting.py"
TESTS = "collector/analyzer"

MUTANTS = (
    Mutant(
        "a message that came twice is counted twice",
        SPILL,
        "    if not same.any():\n",
        "    if True:\n",
        f"{TESTS}/test_garbage.py::TestFragments::test_one_identifier_in_two_chunks",
    ),
    Mutant(
        "a message that came twice is only seen within a chunk",
        "server/analyzer/decryption.py",
        "            first = first_of_each(messages)\n",
        "            first = messages\n",
        f"{TESTS}/test_garbage.py::TestFragments::test_one_identifier_in_two_chunks",
    ),
    Mutant(
        "partitions by a hash that anybody knows",
        SPILL,
        "        drawn = SystemBits().draw(48)\n",
        "        drawn = bytes(48)\n",
        f"{TESTS}/test_disk.py::TestSpilling::test_memory_is_bounded_by_partitions",
    ),
    Mutant(
        "opened messages lie on the disk",
        SPILL,
        "file.write(self._cipher.encrypt(_nonce(chunk, partition), piece, None))",
        "file.write(self._cipher.encrypt(_nonce(chunk, partition), piece, None))\n"
        "                path.with_name('plain').write_bytes(piece)",
        f"{TESTS}/test_disk.py::test_nothing_readable_is_written_while_a_crowd_is_opened",
    ),
    Mutant(
        "a count can be larger than the crowd",
        COUNTING,
        "        by_bit = np.minimum(self._by_bit, reports)\n",
        "        by_bit = self._by_bit.copy()\n",
        f"{TESTS}/test_garbage.py::TestFragments::test_a_count_is_at_most_the_crowd",
    ),
    Mutant(
        "fragments that cannot be read do not make the crowd smaller",
        COUNTING,
        "needed - -(-unreadable // messages)",
        "needed",
        f"{TESTS}/test_garbage.py::TestFragments",
    ),
    Mutant(
        "a report that may be incomplete counts for the promise",
        COUNTING,
        "complete, reports = max(needed - unreadable, 0),",
        "complete, reports = needed - -(-unreadable // messages),",
        f"{TESTS}/test_garbage.py::TestFragments::test_one_message_more_and_the_crowd_is_too_small",
    ),
    Mutant(
        "a hollow crowd is released with its promise",
        STORE,
        "        if opened.complete >= max(crowd.plan.crowd_size or 0, 1):\n",
        "        if opened.complete:\n",
        f"{TESTS}/test_garbage.py::TestWholeReports"
        "::test_a_hollow_crowd_is_discarded_and_promises_nothing",
    ),
    Mutant(
        "a relay gets the key of a crowd that another relay fills",
        PLAN,
        """ AND state = 'open' AND relay = ?\"\n            \" ORDER BY crowd",\n"""
        "            (*where, relay),\n",
        """ AND state = 'open'\"\n            \" ORDER BY crowd",\n            where,\n""",
        f"{TESTS}/test_door.py::TestKeys::test_no_key_of_a_crowd_that_other_data_fill",
    ),
    Mutant(
        "a crowd is called complete though a chunk is damaged",
        "server/analyzer/service.py",
        "        if await self._find_damage(receipt.crowd):\n",
        "        if False:\n",
        f"{TESTS}/test_door.py::TestDamage::test_the_last_chunk_does_not_complete_a_damaged_crowd",
    ),
    Mutant(
        "dummies are told as garbage",
        COUNTING,
        "len(positions) - len(inside) - dummies",
        "len(positions) - len(inside)",
        f"{TESTS}/test_garbage.py::TestFragments::test_dummies_are_not_garbage",
    ),
    Mutant(
        "the private key of a released crowd is kept",
        PLAN,
        '                self._end(number, "sealed", reports, 10, release)\n',
        '                kept = self._keys.key(self.plan.id, "crowd", number)\n'
        '                self._end(number, "sealed", reports, 10, release)\n'
        "                self._database.execute("
        "\"INSERT INTO facts VALUES ('kept', ?)\", (kept,))\n",
        f"{TESTS}/test_disk.py::test_after_the_release_neither_key_nor_message_is_left",
    ),
    Mutant(
        "the file's key stays the same when a crowd is released",
        STORE,
        "        with self._changing_key(scrub=True):\n            plan = self._sealed_plan(",
        "        with self._transaction():\n            plan = self._sealed_plan(",
        f"{TESTS}/test_disk.py::test_after_the_release_neither_key_nor_message_is_left",
    ),
    Mutant(
        "private keys stay when their window is over",
        PLAN,
        "        return self.close_windows(before=(time.day - 1) * _DAY // self.plan.window - 1)\n",
        "        return []\n",
        f"{TESTS}/test_door.py::TestTime",
    ),
    Mutant(
        "a whole crowd is given up with its window",
        PLAN,
        " AND state = 'open' AND (chunks IS NOT arrived OR",
        " AND state = 'open' AND (1 = 1 OR",
        f"{TESTS}/test_crashes.py::test_a_whole_crowd_is_opened_whatever_happens_to_its_plan",
    ),
    Mutant(
        "a crowd is released twice",
        PLAN,
        "WHERE plan = ? AND number = ? AND state = 'open'\",\n            (unreadable",
        'WHERE plan = ? AND number = ?",\n            (unreadable',
        f"{TESTS}/test_crashes.py::test_while_it_opens_and_releases",
    ),
    Mutant(
        "a chunk is acknowledged before it is on the disk",
        STORE,
        "            self._files.write(plan.plan.id, crowd.number, chunk.number, content)\n"
        "            with self._transaction():\n"
        "                crowd = plan.note_chunk(crowd, chunk, digest.digest())\n",
        "            with self._transaction():\n"
        "                crowd = plan.note_chunk(crowd, chunk, digest.digest())\n"
        "            self._files.write(plan.plan.id, crowd.number, chunk.number, content)\n",
        f"{TESTS}/test_crashes.py::test_while_it_receives",
    ),
    Mutant(
        "other bytes replace a chunk that came before",
        PLAN,
        "return None if bytes(row[0]) == digest else problems.OTHER_CHUNK",
        "return None",
        f"{TESTS}/test_door.py::TestChunks",
    ),
    Mutant(
        "a crowd of too few messages is opened",
        PLAN,
        "messages == self.messages if missing == 0 else",
        "messages <= self.messages if missing == 0 else",
        f"{TESTS}/test_door.py::TestChunks::test_what_does_not_fit_changes_nothing",
    ),
    Mutant(
        "chunks of two keys in one crowd",
        PLAN,
        "fits = (chunk.key, chunk.messages) == (crowd.key.digest, self.messages)",
        "fits = chunk.messages == self.messages",
        f"{TESTS}/test_door.py::TestChunks",
    ),
    Mutant(
        "one key for all crowds of a plan",
        PLAN,
        '        secret = self._keys.draw(self.plan.id, "crowd", last + 1)\n',
        '        self._keys.draw(self.plan.id, "crowd", last + 1)\n'
        "        secret = bytes.fromhex(self.plan.id)\n",
        f"{TESTS}/test_door.py::TestKeys::test_one_for_each_crowd_for_ever_and_signed",
    ),
    Mutant(
        "a relay's token is not looked at",
        DOOR,
        "        if token is None:\n            return problems.NO_TOKEN\n",
        "        token = token or Token('', 'relay', '')\n",
        f"{TESTS}/test_door.py::TestWhoMay",
    ),
    Mutant(
        "any token may bring chunks of any plan",
        DOOR,
        '        if token.role != "relay" or not token.covers(plan_id):\n',
        '        if token.role != "relay":\n',
        f"{TESTS}/test_door.py::TestWhoMay",
    ),
    Mutant(
        "the signature of a chunk is not checked",
        DOOR,
        "    if not _is_signed(token.key, signature, body):\n",
        "    if token.key is None:\n",
        f"{TESTS}/test_door.py::TestWhoMay::test_not_with_another_key_or_none",
    ),
    Mutant(
        "a collector takes a plan with a relay and an analyzer",
        "server/collector/service.py",
        "        return None if plan.parties is None else problems.NEEDS_ANALYZER\n",
        "        return None\n",
        f"{TESTS}/test_door.py::TestOtherParty",
    ),
)
