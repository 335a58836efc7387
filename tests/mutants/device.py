"""On the device: the sampler, random bits, encoding, memory, ledger and outbox."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RANDOMIZING = "device/randomize.py"
BULK = "device/arrays/randomize.py"
RANDOM = "protocol/random_bits.py"
MEMORY = "device/memory.py"
LEDGER = "device/ledger.py"
OUTBOX = "device/outbox/outbox.py"

KERNELS = "support/kernels.c"
KERNEL_TESTS = "support/test_kernels.py::TestRandomize"

MUTANTS = (
    # The sampler
    Mutant(
        "the kernel uses one key for all blocks",
        BULK,
        "    digits = bytes(q.binary_digits())\n",
        "    digits = bytes(q.binary_digits())\n    key = random_bits.key()\n"
        "    random_bits = type('', (), {'key': lambda self: key})()\n",
        f"{KERNEL_TESTS}::test_every_block_has_a_key_of_its_own",
    ),
    Mutant(
        "the kernel draws where other bits were given",
        BULK,
        "type(random_bits) is SystemBits",
        "isinstance(random_bits, SystemBits)",
        f"{KERNEL_TESTS}::test_bits_of_another_source_are_used",
    ),
    Mutant(
        "the kernel takes the same blocks of the key stream for every digit",
        KERNELS,
        "    __m128i fair[8], flips[8];\n",
        "    __m128i fair[8], flips[8];\n    stride = 0;\n",
        f"{KERNEL_TESTS}::test_the_same_bytes_as_another_library",
    ),
    Mutant(
        "the kernel exchanges and and or in what is left over",
        KERNELS,
        "digits[j] ? flips[w] | drawn : flips[w] & drawn",
        "digits[j] ? flips[w] & drawn : flips[w] | drawn",
        f"{KERNEL_TESTS}::test_the_same_bytes_as_another_library",
    ),
    Mutant(
        "the kernel counts blocks without a carry wherever they begin",
        KERNELS,
        "if (words % WORDS == 0) ",
        "if (words % 2 == 0)     ",
        f"{KERNEL_TESTS}::test_the_same_bytes_as_another_library",
    ),
    Mutant(
        "the kernel does a round of AES less",
        KERNELS,
        "enum { ROUNDS = 14,",
        "enum { ROUNDS = 13,",
        f"{KERNEL_TESTS}::test_the_same_bytes_as_another_library",
    ),
    Mutant(
        "the sampler of one vector drops a digit of q",
        RANDOMIZING,
        "zip(digits[1:], words[1:], strict=True)",
        "zip(digits[2:], words[2:], strict=True)",
        "device/test_randomizing.py::TestExact"
        "::test_of_all_combinations_of_fair_bits_exactly_the_numerator_flip",
    ),
    Mutant(
        "the sampler of one vector exchanges and and or",
        RANDOMIZING,
        "flips | word if digit else flips & word",
        "flips & word if digit else flips | word",
        "device/test_randomizing.py::TestExact"
        "::test_of_all_combinations_of_fair_bits_exactly_the_numerator_flip",
    ),
    Mutant(
        "the sampler of many drops a digit of q",
        BULK,
        "zip(digits[1:], words[1:], strict=True)",
        "zip(digits[2:], words[2:], strict=True)",
        "device/test_randomizing.py::TestExact"
        "::test_of_all_combinations_of_fair_bits_exactly_the_numerator_flip",
    ),
    Mutant(
        "the sampler of many exchanges and and or",
        BULK,
        "np.bitwise_or if digit else np.bitwise_and",
        "np.bitwise_and if digit else np.bitwise_or",
        "device/test_randomizing.py::TestExact"
        "::test_of_all_combinations_of_fair_bits_exactly_the_numerator_flip",
    ),
    Mutant(
        "the flips of one piece of rows are used for the next",
        BULK,
        "        fill_flips(words, q, random_bits)\n",
        "        if not start:\n            fill_flips(words, q, random_bits)\n",
        "device/test_randomizing.py::TestBoundaries::test_no_noise_is_used_twice",
    ),
    Mutant(
        "the fair bits of one block are used for the next",
        BULK,
        "        random_bits.fill(words)\n",
        "        if not start:\n            random_bits.fill(words)\n",
        "device/test_randomizing.py::TestBoundaries::test_no_noise_is_used_twice",
    ),
    Mutant(
        "the padding of one vector is random",
        RANDOMIZING,
        "return flips & ((1 << bits) - 1)",
        "return flips",
        "device/test_one_report.py::TestTheSameBytes::test_every_number_of_digits",
    ),
    Mutant(
        "the padding of many vectors is random",
        BULK,
        "    if original.bits % 8:\n",
        "    if original.bits % 8 > 4:\n",
        "device/test_one_report.py::TestTheSameBytes::test_every_number_of_digits",
    ),
    Mutant(
        "one simulated vector is not marked",
        RANDOMIZING,
        "original.cohort, random_bits.simulated",
        "original.cohort",
        "device/test_memory.py::TestRemember::test_the_mark_of_a_simulation_is_kept",
    ),
    Mutant(
        "many simulated vectors are not marked",
        BULK,
        "random_bits.simulated, original.cohorts",
        "False, original.cohorts",
        "device/test_randomizing.py::TestWhatIsRefused::test_simulated_noise_marks_the_result",
    ),
    Mutant(
        "simulated vectors are sent",
        "device/randomize.py",
        "if synthetic.simulated:",
        "if False:",
        "protocol/test_wire.py::TestPacking::test_simulated_vectors_do_not_travel",
    ),
    # Random bits
    Mutant(
        "a key without fresh entropy",
        RANDOM,
        "_pool + _fresh_entropy() + clocks",
        "_pool + clocks",
        "protocol/test_random_bits.py::TestNoFallback",
    ),
    Mutant(
        "a key without the clocks",
        RANDOM,
        "_pool + _fresh_entropy() + clocks",
        "_pool + _fresh_entropy()",
        "protocol/test_random_bits.py::TestClones::test_copies_of_the_kernel_too",
    ),
    Mutant(
        "what stays in memory tells the last key",
        RANDOM,
        "key, _pool = mixed[:32], mixed[32:]",
        "key = _pool = mixed[:32]",
        "protocol/test_random_bits.py::TestClones::test_what_stays_in_memory_tells_no_key",
    ),
    Mutant(
        "a source that repeats itself is believed",
        RANDOM,
        "digest == _last_digest or entropy == bytes(32)",
        "entropy == bytes(32)",
        "protocol/test_random_bits.py::TestNoFallback"
        "::test_a_source_that_repeats_itself_is_noticed_at_the_next_call",
    ),
    Mutant(
        "the clock where the system gives no random bits",
        RANDOM,
        'raise EntropyError(f"the operating system gave no random bits: {error}.") from error',
        'entropy = (b"%d %r" % (time.time_ns(), error)).ljust(count)[:count]',
        "protocol/test_random_bits.py::TestNoFallback::test_no_entropy",
    ),
    Mutant(
        "one key for a draw of any length",
        RANDOM,
        "if len(piece) > left:",
        "if not start:",
        "protocol/test_random_bits.py::TestFresh::test_one_large_draw_changes_keys_on_the_way",
    ),
    Mutant(
        "one number below a bound by remainder",
        RANDOM,
        "last = 2**64 - 1 - 2**64 % bound",
        "last = 2**64 - 1",
        "protocol/test_random_bits.py::TestDrawBelow::test_what_does_not_divide_is_drawn_again",
    ),
    Mutant(
        "many numbers below a bound by remainder",
        "device/arrays/encode.py",
        "np.uint64(2**64 - 1 - 2**64 % bound)",
        "np.uint64(2**64 - 1)",
        "device/test_one_report.py::TestTheSameBytes::test_numbers_below_a_bound",
    ),
    Mutant(
        "one cohort for all rows of a table",
        "device/arrays/encode.py",
        "draw_many_below(survey.cohorts, count, random_bits).astype",
        "np.repeat(draw_many_below(survey.cohorts, 1, random_bits), count).astype",
        "device/test_encoding.py::TestOneAnswer::test_every_report_draws_a_cohort_of_its_own",
    ),
    # Encoding
    Mutant(
        "one vector is randomized whatever its domain",
        RANDOMIZING,
        "check_vector(original.value, plan.survey)",
        "pass",
        "device/test_one_report.py::TestDomain::test_randomizing_looks_first",
    ),
    Mutant(
        "many vectors are randomized whatever their domain",
        BULK,
        "check_domain(original.rows, plan.survey)",
        "pass",
        "device/test_domain.py::TestBoundary::test_exactly_at_it_and_beyond",
    ),
    Mutant(
        "a remembered vector whatever its domain",
        MEMORY,
        "check_vector(original.value, plan.survey)",
        "pass",
        "device/test_domain.py::TestDoors::test_memory",
    ),
    Mutant(
        "one option more than a question allows",
        "device/vectors.py",
        "block.bit_count() <= part.most_set_bits:",
        "block.bit_count() <= part.most_set_bits + 1:",
        "device/test_one_report.py::TestDomain::test_both_looks_agree",
    ),
    Mutant(
        "two options of one choice and none of another",
        "device/arrays/randomize.py",
        "if np.bitwise_or.reduce(common):",
        "if False:",
        "device/test_domain.py::TestBoundary::test_every_vector_of_a_survey",
    ),
    Mutant(
        "a missing answer is the last option",
        "device/encode.py",
        "if question.missing is None:",
        "if False:",
        "device/test_encoding.py::TestBadAnswers::test_row_question_and_value_are_named",
    ),
    Mutant(
        "flags that were not answered are none set",
        "device/encode.py",
        "isinstance(question, (Flags, Text)):",
        "isinstance(question, Text):",
        "device/test_encoding.py::TestBadAnswers::test_questions_left_out_or_made_up",
    ),
    # Memory
    Mutant(
        "a permanent vector is drawn again",
        MEMORY,
        "if name not in flips.answers:",
        "if True:",
        "device/test_memory.py::TestRemember::test_the_same_answer_has_the_same_vector_tomorrow",
    ),
    Mutant(
        "a permanent vector is not kept",
        MEMORY,
        "_Permanent(drawn.row, drawn.simulated)\n            self._write(remembered)",
        "_Permanent(drawn.row, drawn.simulated)",
        "device/test_memory.py::TestRemember::test_the_same_answer_has_the_same_vector_tomorrow",
    ),
    Mutant(
        "an edit of words draws new permanent flips",
        "protocol/wording.py",
        '"survey": survey.name,',
        '"survey": plan.id,',
        "device/test_memory.py::TestEdits::test_five_labels_have_one_vector_that_is_charged_once",
    ),
    Mutant(
        "permanent flips outlive a change of q1",
        "protocol/wording.py",
        '"q1": plan.memory.q1.to_json(),',
        '"q1": None,',
        "device/test_memory.py::TestEdits::test_new_flips_are_charged_again",
    ),
    Mutant(
        "permanent flips outlive a new order of options",
        MEMORY,
        "flips for flips in known if not any(any(old.moved(wording)) for old in flips.wordings)",
        "flips for flips in known",
        "device/test_memory.py::TestEdits::test_new_flips_are_charged_again",
    ),
    Mutant(
        "a word moves to another bit in two edits, and permanent flips outlive them",
        MEMORY,
        "for old in flips.wordings)",
        "for old in flips.wordings[-1:])",
        "device/test_memory.py::TestEdits::test_no_word_moves_in_several_edits",
    ),
    Mutant(
        "a shared permanent vector is charged for each plan",
        LEDGER,
        "shared = (one.permanent_key, name,",
        "shared = (one.plan_id, name,",
        "device/test_ledger.py::TestCommand::test_plans_that_share_permanent_flips_count_once",
    ),
    Mutant(
        "the second plan of a shared vector begins a series of its own",
        LEDGER,
        "series.setdefault(one.permanent_key, [])",
        "series.setdefault(one.plan_id, [])",
        "device/test_ledger.py::TestCommand::test_plans_that_share_permanent_flips_count_once",
    ),
    Mutant(
        "permanent flips with q instead of q1",
        MEMORY,
        "randomize(original, memory.q1,",
        "randomize(original, memory.q,",
        "device/test_memory.py::TestRemember::test_a_permanent_vector_flips_with_q1",
    ),
    Mutant(
        "fresh flips with q instead of q2",
        MEMORY,
        "randomize(again, plan.memory.q2,",
        "randomize(again, plan.q,",
        "device/test_memory.py::TestRemember::test_a_report_flips_with_q2_on_top_and_with_q_in_all",
    ),
    Mutant(
        "no fresh flips",
        MEMORY,
        "sent = randomize(again, plan.memory.q2, random_bits=random_bits)",
        "sent = permanent",
        "device/test_memory.py::TestRemember::test_a_report_flips_with_q2_on_top_and_with_q_in_all",
    ),
    Mutant(
        "an answer's digest without the key",
        MEMORY,
        "hmac.new(self._answer_key, message, hashlib.sha256)",
        "hashlib.sha256(message)",
        "device/test_memory.py::TestSecrecy::test_a_name_cannot_be_computed_without_the_key",
    ),
    Mutant(
        "memory encrypted twice under one nonce",
        "device/memory.py",
        "nonce = SystemBits().draw(_NONCE)",
        "nonce = bytes(_NONCE)",
        "device/test_memory.py::TestSecrecy::test_no_nonce_is_used_twice",
    ),
    Mutant(
        "a refused report has drawn its permanent vector",
        MEMORY,
        "            if ledger is not None:\n                # Under",
        "            self._permanent(remembered, plan, plan.memory, original, random_bits)\n"
        "            if ledger is not None:\n                # Under",
        "device/test_memory.py::TestLedgerFirst::test_a_refused_report_draws_nothing",
    ),
    # Ledger
    Mutant(
        "the person's limit is not looked at",
        LEDGER,
        "if account.limit is not None and changed.epsilon",
        "if False and changed.epsilon",
        "device/test_ledger.py::TestCharging"
        "::test_a_limit_refuses_before_it_is_passed_and_counts_nothing",
    ),
    Mutant(
        "the limit is passed once",
        LEDGER,
        "and changed.epsilon > decimal.Decimal(account.limit)",
        "and account.epsilon > decimal.Decimal(account.limit)",
        "device/test_ledger.py::TestCharging"
        "::test_a_limit_refuses_before_it_is_passed_and_counts_nothing",
    ),
    Mutant(
        "a token pays for another answer too",
        LEDGER,
        "_pending_name(token, plan.id, answer)",
        "_pending_name(token, plan.id)",
        "device/test_ledger.py::TestCharging::test_a_token_is_charged_once_until_it_is_settled",
    ),
    # Outbox
    Mutant(
        "a report leaves without a charge",
        "device/outbox/outbox.py",
        "        self._ledger.charge(plan, token=token)\n",
        "",
        "device/test_outbox.py::TestCollaborators::test_the_ledger_is_charged_first",
    ),
    Mutant(
        "the same answer is randomized again in the next window",
        OUTBOX,
        'name.endswith(f".{digest}")',
        'name.endswith(f".{window}.{digest}")',
        "device/test_outbox.py::TestAnswering::test_without_a_key_a_plan_has_one_answer",
    ),
    Mutant(
        "one report more than the plan takes",
        OUTBOX,
        "if len(earlier) >= most:",
        "if len(earlier) > most:",
        "device/test_outbox.py::TestAnswering"
        "::test_another_key_is_refused_where_one_report_is_agreed",
    ),
    Mutant(
        "earlier reports do not count for the device's limit",
        OUTBOX,
        "self._gate.check(plan, len(names) + 1)",
        "self._gate.check(plan)",
        "device/test_outbox.py::TestAnswering::test_above_the_limit_with_several_reports",
    ),
    Mutant(
        "the charge is settled before the report is stored",
        OUTBOX,
        "            record = self._attempts.first_record(",
        "            self._maker.settle(plan, digest)\n"
        "            record = self._attempts.first_record(",
        "device/test_crashes.py::TestOncePerAnswer::test_one_version_one_vector_one_charge",
    ),
    Mutant(
        "the window of another clock",
        OUTBOX,
        "window = current_window(plan, now)",
        "window = current_window(plan, time.time())",
        "device/test_outbox.py::TestAnswering::test_above_the_limit_window_after_window",
    ),
    Mutant(
        "a report is sent the moment it is made",
        "device/outbox/retry.py",
        "due = now + spread * self._jitter()",
        "due = now",
        "device/test_sending.py::TestSending::test_the_first_wait_is_spread",
    ),
    Mutant(
        "a certificate of another plan",
        "protocol/promise.py",
        'if document["plan"] != plan.id:',
        "if False:",
        "planning/test_promise.py::TestCertificates::test_what_is_no_certificate_of_the_plan",
    ),
    Mutant(
        "any signature will do",
        "protocol/signatures.py",
        ".from_public_bytes(public_key).verify(one, content)",
        ".from_public_bytes(public_key)",
        "device/test_signatures.py::TestSigned::test_anything_else_is_not_used",
    ),
    Mutant(
        "another plan than the one that was asked for",
        "device/outbox/plan_policy.py",
        "if actual_id != plan_id:",
        "if False:",
        "device/test_plan_checks.py::TestChecking::test_the_plan_that_was_asked_for",
    ),
    Mutant(
        "with memory the limit is held against one report",
        "device/outbox/plan_policy.py",
        "q = plan.memory.q1 if plan.memory else plan.q",
        "q = plan.q",
        "device/test_plan_checks.py::TestChecking::test_with_memory_the_permanent_flips_count",
    ),
    # A survey from a table
    Mutant(
        "what one person answered is an option",
        "device/arrays/column_kinds.py",
        "value for value, times in usable.items() if times >= RARE",
        "value for value, times in usable.items() if times >= 1",
        "device/test_survey_proposals.py::test_what_a_rare_person_answered_is_not_in_the_survey",
    ),
    Mutant(
        "addresses are asked for",
        "device/arrays/column_kinds.py",
        "if pattern.fullmatch(value)) > people / 2:",
        "if pattern.fullmatch(value)) > 2 * people:",
        "device/test_survey_proposals.py::test_kinds",
    ),
)
