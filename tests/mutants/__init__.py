"""Mutants: changes that break a promise, each with the tests that must notice it.

There is at least one for each privacy statement of `docs/statements.md`. `python -m tests.mutants`
tries them. For mutants of everything else use a tool: CONTRIBUTING.md says how.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    # The sampler and its random bits
    Mutant(
        "one vector is sampled with AND and OR exchanged",
        "shoal.device.randomize:draw_flips",
        "| word if digit else flips &",
        "& word if digit else flips |",
        "device/test_randomize.py::TestExact::test_of_all_combinations_of_fair_bits_exactly_the_numerator_flip",
    ),
    Mutant(
        "many vectors are sampled with AND and OR exchanged",
        "shoal.device.arrays.randomize:fill_flips",
        "np.bitwise_or if digit else np.bitwise_and",
        "np.bitwise_and if digit else np.bitwise_or",
        "device/test_randomize.py::TestExact::test_of_all_combinations_of_fair_bits_exactly_the_numerator_flip",
    ),
    Mutant(
        "the flips of one block of rows are used again",
        "shoal.device.arrays.randomize:_flip",
        "        fill_flips(words, q, random_bits)",
        ("        if not start:\n            fill_flips(words, q, random_bits)"),
        "device/test_randomize.py::TestBoundaries::test_no_noise_is_used_twice",
    ),
    Mutant(
        "a key without fresh entropy",
        "shoal.protocol.random_bits:_fresh_key",
        "_fresh_entropy() + clocks",
        "clocks",
        "protocol/test_random_bits.py::TestNoFallback",
    ),
    # One answer on a device
    Mutant(
        "an answer is randomized twice",
        "shoal.device.outbox.outbox:Outbox.answer",
        "name.endswith(f'.{digest",
        "name.endswith(f'.{window}.{digest",
        "device/test_outbox.py::TestAnswering::test_without_a_key_a_plan_has_one_answer",
    ),
    Mutant(
        "the ledger ignores the person's limit",
        "shoal.device.ledger:Ledger.charge",
        "account.limit is not None",
        "False",
        "device/test_ledger.py::TestCharging::test_a_limit_refuses_before_it_is_passed_and_counts_nothing",
    ),
    Mutant(
        "a permanent vector is drawn again",
        "shoal.device.memory:DeviceMemory._permanent",
        "name not in flips.answers",
        "True",
        "device/test_memory.py::TestRemember::test_the_same_answer_has_the_same_vector_tomorrow",
    ),
    Mutant(
        "an edit of words draws new permanent flips",
        "shoal.protocol.wording:permanent_key",
        "survey.name",
        "plan.id",
        "device/test_memory.py::TestEdits::test_five_labels_have_one_vector_that_is_charged_once",
    ),
    Mutant(
        "a quote reaches into the next row",
        "shoal.support.csv_rows:_rows",
        "    if len(rows) == len(lines) and (not any(('\\r' in line for line in lines))):",
        (
            "    rows += [None] * (len(lines) - len(rows))\n"
            "    if rows and (not any(('\\r' in line for line in lines))):"
        ),
        "adversary/test_rows.py::test_rows_are_read_alone_wherever_blocks_of_a_file_meet",
    ),
    Mutant(
        "an empty line of a CSV file is nobody's",
        "shoal.support.csv_rows:_parsed",
        "text.split('\\n')",
        "[line for line in text.split('\\n') if line]",
        "adversary/test_rows.py::test_one_line_of_a_file_changes_one_count_by_one",
    ),
    Mutant(
        "the fragments of a report share an identifier",
        "shoal.protocol.encryption:pack_fragments",
        "ID_BYTES * place:ID_BYTES * (place + 1)",
        ":ID_BYTES",
        (
            "protocol/test_encryption.py::TestFragments, "
            "device/test_encrypted_sending.py::TestSending::test_identifiers_are_all_different"
        ),
    ),
    Mutant(
        "an oblivious relay's key is used unchecked",
        "shoal.device.outbox.oblivious:ObliviousTransport._known_key",
        "key not in KeyConfiguration.read_list(content)",
        "False",
        "server/test_oblivious.py::TestConsistency::test_a_key_for_each_fetch_is_refused",
    ),
    Mutant(
        "events before consent are recorded",
        "shoal.device.telemetry.telemetry:Telemetry._note",
        ("        if choice == 'yes':\n            self._write([line])"),
        ("        if choice != 'no':\n            state.append_event(str(self.folder), 0, line)"),
        "device/test_telemetry.py::TestConsent::test_nothing_is_written_before_a_yes",
    ),
    Mutant(
        "events are deleted before their report is stored",
        "shoal.device.telemetry.worker:TelemetryWorker._report",
        "        answer = merge(plan.survey, read_events(mine.read_bytes()))",
        (
            "        content = mine.read_bytes()\n"
            "        mine.unlink()\n"
            "        mine.touch()\n"
            "        answer = merge(plan.survey, read_events(content))"
        ),
        "device/test_telemetry_worker.py::TestCrashes::test_killed_anywhere",
    ),
    Mutant(
        "the factor shown to a person is rounded down",
        "shoal.device.telemetry.describe:_factor",
        "text_up(math.nextafter(math.exp(epsilon), math.inf), 3)",
        "f'{math.exp(epsilon) * 0.99:.3g}'",
        "device/test_telemetry.py::test_the_factor_that_is_shown_by_enumeration",
    ),
    # Formulas and certificates
    Mutant(
        "q is rounded down",
        "shoal.protocol.flip_probability:FlipProbability.at_least",
        "math.ceil",
        "math.floor",
        "protocol/test_flip_probability.py::TestRoundingUp::test_tiny_q_is_rounded_up_as_finely_as_digits_allow",
    ),
    Mutant(
        "the worst crowd of one bit is one end of the range",
        "shoal.theory.one_bit:worst_one_bit_delta",
        "ends.low.max(), ends.high.max()",
        "ends.low[0], ends.high[0]",
        "theory/test_one_bit.py::test_worst_over_m_by_trying_all",
    ),
    Mutant(
        "the round-off of the integral is dropped",
        "shoal.theory.stop_loss:refine",
        "result.roundoff + result.cutoff",
        "result.cutoff",
        "theory/test_error_terms.py::TestRefinement",
    ),
    Mutant(
        "one device pays for all dropped messages",
        "shoal.theory.binomial:truncation_price",
        "(1.0 + ratio) * reports * chance * (1.0 + 1e-14 * (1.0 + epsilon))",
        "chance",
        "theory/test_binomial.py::test_every_device_on_both_sides_is_paid_for",
    ),
    Mutant(
        "one message fewer costs nothing",
        "shoal.theory.binomial:overflow_chance",
        ">= bits",
        ">= bits - 1",
        "theory/test_binomial.py::test_the_tail_is_just_above_the_exact_one",
    ),
    Mutant(
        "a colluder tells of one report only",
        "shoal.planning.certificate:Certificate.with_colluders",
        "count * self.reports_per_person",
        "count",
        "planning/test_certificate.py::test_a_colluder_tells_all_that_they_sent",
    ),
    Mutant(
        "the whole crowd is honest",
        "shoal.protocol.plan:Plan.reports_needed",
        "self.honest_fraction or '1'",
        "1",
        "planning/test_certificate.py::test_an_honest_fraction_needs_more_reports",
    ),
    Mutant(
        "group privacy without its factor",
        "shoal.planning.certificate:Certificate.proven",
        "single.delta.times(factor).capped",
        "single.delta.capped",
        (
            "planning/test_certificate.py::test_several_reports_per_person_are_counted, "
            "adversary[several reports]"
        ),
    ),
    Mutant(
        "losses end below the local epsilon of all reports",
        "shoal.planning.composition:_losses",
        "certificate.reports_per_person * certificate.local_epsilon * (1 + 4e-14)",
        "0.9 * certificate.reports_per_person * certificate.local_epsilon",
        "planning/test_composition.py::test_randomized_response_composes_as_a_binomial",
    ),
    Mutant(
        "basic composition spends delta once",
        "shoal.planning.composition:Composition.basic_epsilon",
        "part_of(delta, self.releases)",
        "delta",
        (
            "planning/test_composition.py::test_each_release_has_its_part_of_delta, "
            "adversary[composition]"
        ),
    ),
    Mutant(
        "with memory one report of many pays for dropped messages",
        "shoal.planning.guarantees:_sent",
        ", reports=reports",
        "",
        "planning/test_fragments.py::TestMemory::test_every_report_that_may_overflow_is_paid_for",
    ),
    Mutant(
        "a horizon leaves out a window at its end",
        "shoal.planning.memory:_windows_touched",
        "// window) + 1",
        "// window)",
        "planning/test_memory.py::TestPlanning::test_a_horizon_counts_the_windows_it_cuts_at_both_ends",
    ),
    Mutant(
        "an edit is not judged by what it reveals",
        "shoal.planning.plan_diff:_changes",
        "judged and one.epsilon > was.epsilon",
        "False",
        "planning/test_plan_diff.py::TestGuarantees::test_one_option_more_and_no_limit_for_a_report",
    ),
    Mutant(
        "a publication repeats the plan's claim",
        "shoal.planning.certificate:check_promise",
        "computed.refusal is not None",
        "False",
        "planning/test_promise.py::TestCommands::test_every_command_refuses",
    ),
    Mutant(
        "a single report reveals half",
        "shoal.protocol.flip_probability:local_epsilon",
        "differing_bits *",
        "differing_bits // 2 *",
        (
            "planning/test_plan.py::TestLocal::test_local_epsilon_by_brute_force, "
            "device/test_ledger.py::TestPrices::test_one_report_is_the_local_epsilon_rounded_up"
        ),
    ),
    Mutant(
        "a crowd of one hides",
        "shoal.theory.homogeneous:local_delta",
        "(differ, 0, 0), 1,",
        "(differ, 0, 0), 2,",
        (
            "planning/test_certificate.py::test_crowd_of_one_is_the_local_pair, "
            "adversary[small world]"
        ),
    ),
    Mutant(
        "whole reports are promised the delta of counts",
        "shoal.planning.threats:_analyzer",
        (
            "delta = proven if certificate.view == 'reports' else "
            "_delta_of_reports(certificate, epsilon)"
        ),
        "delta = proven",
        "planning/test_bounds.py::TestObservers::test_of_a_plan_for_counts",
    ),
    Mutant(
        "fake devices of the analyzer hide people",
        "shoal.planning.threats:_with_fakes",
        "left = certificate.with_colluders(fakes)",
        "left = certificate",
        "planning/test_fragments.py::TestObservers::test_who_sees_what",
    ),
    Mutant(
        "a certificate states half its epsilon",
        "shoal.planning.bounds:ReportsBound.epsilon",
        ".value",
        ".value / 2",
        (
            "planning/test_certificate.py::test_delta_and_epsilon_invert_each_other, "
            "adversary[one bit]"
        ),
    ),
    Mutant(
        "printed numbers are rounded down",
        "shoal.support.rounding:text_up",
        "ROUND_CEILING",
        "ROUND_FLOOR",
        (
            "planning/test_plan.py::TestProven::test_solved_numbers_are_certified_as_they_are_printed"
            ", reports/test_publication.py::TestNumbers::test_privacy_numbers_are_rounded_up"
        ),
    ),
    Mutant(
        "eta is that of the first homogeneous crowd",
        "shoal.theory.sufficient:sufficient_eta",
        "crowds = sorted(every)",
        "crowds = sorted(every)[:2]",
        "adversary/test_adversary.py::test_eta_is_that_of_the_worst_homogeneous_crowd",
    ),
    Mutant(
        "eta is as small as delta",
        "shoal.theory.homogeneous:eta",
        "low = here.low + max(here.low - right.high, 0.0) / step / slack",
        "low = here.low",
        "theory/test_papers.py::test_three_sigma_is_no_guarantee",
    ),
    Mutant(
        "the variance of the privacy ratio lacks a term",
        "shoal.theory.homogeneous:ratio_moments",
        "(second - square) / N ** 2",
        "second / N ** 2",
        "theory/test_homogeneous.py::test_moments_by_enumeration",
    ),
    Mutant(
        "the blanket counts one person more",
        "shoal.theory.blanket:blanket_delta",
        "stop_loss_of(draws[0], N, rtol).times(1.0 / N)",
        "stop_loss_of(draws[0], N, rtol).times(1.0 / (N + 1))",
        "theory/test_proven.py::test_truth_is_between_attack_and_promise",
    ),
    Mutant(
        "the blanket of text is too wide",
        "shoal.theory.blanket:blanket_delta",
        "Bracket(low, high).times(1.0 / N)",
        "Bracket(low, high).times(1.0 / (2 * N))",
        "analysis/test_text.py::TestPrivacy::test_small_worlds_by_enumeration",
    ),
    Mutant(
        "whole reports rely on one person more",
        "shoal.planning.bounds:ReportsBound.proven",
        "crowd_size, q, epsilon, rtol)",
        "crowd_size + 1, q, epsilon, rtol)",
        (
            "analysis/test_discovery.py::TestPromise::test_holds_exactly_in_a_crowd_of_two, "
            "adversary[text with cohorts]"
        ),
    ),
    Mutant(
        "counts are local with one bit fewer",
        "shoal.theory.counts:is_local",
        "d *",
        "(d - 1) *",
        "theory/counts/test_counts.py::test_brackets_contain_the_enumeration",
    ),
    Mutant(
        "the attack on counts confuses the two answers",
        "shoal.planning.bounds:CountsBound.attack",
        "{'first': crowd_size - 1 - attack.ones, 'second': attack.ones}",
        "{'first': attack.ones, 'second': crowd_size - 1 - attack.ones}",
        "planning/test_bounds.py::test_the_crowd_of_the_attack_can_answer_so_and_has_its_delta",
    ),
    Mutant(
        "a bound always relies on the whole crowd",
        "shoal.planning.bounds:CountsBound.hiding",
        "return best_crowd(delta, cost, crowd_size)",
        "return crowd_size if self.cohorts == 1 else self._cohort(crowd_size, 1e-09)[0]",
        "planning/test_bounds.py::TestLargerCrowds::test_they_are_promised_no_less",
    ),
    Mutant(
        "one release counts on twice the crowd",
        "shoal.planning.guarantees:_one_release",
        "plan.q, crowd)",
        "plan.q, 2 * crowd)",
        "planning/test_guarantees.py::TestStatementsHold::test_one_release",
    ),
    Mutant(
        "many reports of one answer reveal as much as one",
        "shoal.protocol.flip_probability:repeated_epsilon",
        "reports)]",
        "1)]",
        "device/test_ledger.py::TestPrices::test_reports_of_one_answer_by_enumeration",
    ),
    Mutant(
        "answers that change reveal as much as one answer",
        "shoal.protocol.flip_probability:changing_epsilon",
        "(reports - 1) *",
        "0 *",
        "device/test_ledger.py::TestPrices::test_any_answers_at_any_time_by_enumeration",
    ),
    Mutant(
        "fresh flips protect the same crowd in every release",
        "shoal.planning.guarantees:_same_crowd",
        "_certificate(plan, memory.q1,",
        "_certificate(plan, plan.q,",
        "planning/test_guarantees.py::TestStatementsHold::test_the_same_crowd",
    ),
    Mutant(
        "permanent flips protect changing crowds",
        "shoal.planning.guarantees:changing_crowds_epsilon",
        "plan.memory.q2",
        "plan.q",
        "planning/test_guarantees.py::TestStatementsHold::test_crowds_that_change",
    ),
    Mutant(
        "fresh flips protect an answer for ever",
        "shoal.reports.protection:facts",
        "plan.memory.q1",
        "plan.q",
        "reports/test_publication.py::TestPromises::test_memory_says_what_holds_for_ever",
    ),
    Mutant(
        "two reports are matched as if flips were fresh",
        "shoal.planning.memory:linking_probability",
        "own = np.outer(_binomial(flips, flip_again), _binomial(rest, flip_now))",
        "own = np.outer(_binomial(flips, q), _binomial(rest, q))",
        "device/test_memory.py::TestLinking::test_by_brute_force",
    ),
    Mutant(
        "a kept cohort is the whole crowd",
        "shoal.planning.rappor:Migration._cohort",
        "self.parameters.m",
        "1",
        "planning/test_rappor.py::TestKeptCohorts::test_what_is_proven_holds",
    ),
    Mutant(
        "RAPPOR's epsilon counts the better odds",
        "shoal.planning.rappor:RapporParameters.local_epsilon",
        "max(first, second)",
        "min(first, second)",
        "planning/test_rappor.py::TestTheChannel::test_local_epsilons_are_exact",
    ),
    Mutant(
        "a search states a bound that is too small",
        "shoal.lab.counterexamples:proven_eta",
        "1.0 / share * (1.0 + 1e-14)",
        "0.5",
        "lab/test_counterexamples.py::test_nothing_exceeds_the_proven_bound",
    ),
    Mutant(
        "no crowd violates the conjecture",
        "shoal.lab.counterexamples:Search.conjecture",
        "'violated' if 'forward' in self.beats else 'not violated here'",
        "'not violated here'",
        "lab/test_counterexamples.py::test_two_flags",
    ),
    Mutant(
        "half the people are enough",
        "shoal.planning.costs:_Question.people_needed",
        "return math.ceil(smallest(",
        "return math.ceil(0.5 * smallest(",
        "planning/test_costs.py::TestPeopleNeeded::test_a_plan_for_that_many_reaches_the_error",
    ),
    Mutant(
        "a false claim of a paper agrees",
        "shoal.lab.papers:Paper.claim",
        "if not broken:",
        "if len(broken) < 2:",
        "lab/test_papers.py::test_claimed_maxima_are_exceeded_by_certified_ends",
    ),
    # Tallies and releases
    Mutant(
        "a sum of crowds is one crowd",
        "shoal.analysis.tally:Tally.people_may_repeat",
        "len(self.crowds) > 1 and self.people != 'different'",
        "False",
        (
            "analysis/test_crowds.py::TestPromise::test_one_flag, "
            "analysis/test_crowds.py::TestEstimates::test_fresh_flips_cover"
        ),
    ),
    Mutant(
        "a sum of crowds with the same permanent flips is released",
        "shoal.analysis.estimates:check_crowd",
        "repeat and plan.memory is not None",
        "False",
        "analysis/test_crowds.py::TestEstimates::test_permanent_flips_do_not_cover",
    ),
    Mutant(
        "a tally for counts has a histogram of set bits",
        "shoal.analysis.tally:Tallying.result",
        " if self._plan.view == 'reports' else None",
        "",
        "analysis/test_joint.py::TestCounting::test_only_single_bits_are_counted",
    ),
    Mutant(
        "people who are declared different may be in small crowds",
        "shoal.analysis.estimates:_check_sizes",
        "if tally.reports < needed:",
        "if False:",
        "analysis/test_crowds.py::TestPromise::test_different_people_are_one_larger_crowd",
    ),
    # A trusted curator
    Mutant(
        "half the noise",
        "shoal.curator.noise:mechanism",
        "float_at_least(sensitivity / wanted",
        "float_at_least(sensitivity / wanted / 2",
        "curator/test_curator.py::TestMechanism::test_opendp_s_own_map_never_exceeds_epsilon",
    ),
    Mutant(
        "noise is drawn before the budget is spent",
        "shoal.curator.curator:Curator._release",
        "    what = _brief(what)",
        ("    what = _brief(what)\n    noise(exact)"),
        "curator/test_curator.py::TestBudget::test_nothing_is_released_beyond_it",
    ),
    Mutant(
        "intervals of many numbers are those of one",
        "shoal.curator.query:Release.accuracy",
        "count = max(len(self.values), 1)",
        "count = 1",
        "curator/test_curator.py::TestAccuracy::test_statements",
    ),
    Mutant(
        "a budget forgets what was spent",
        "shoal.curator.budget:Budget.spend",
        "if _exact(wanted) > left:",
        "if _exact(wanted) > _exact(amount):",
        "curator/test_curator.py::TestBudget::test_processes_cannot_overspend",
    ),
    Mutant(
        "a budget does not add deltas",
        "shoal.curator.budget:Budget.spend",
        "(('epsilon', self._epsilon), ('delta', self._delta))",
        "(('epsilon', self._epsilon),)",
        "curator/test_curator.py::TestBudget::test_deltas_add_up_too",
    ),
    Mutant(
        "replacing a row of a survey counts as removing it",
        "shoal.curator.counts:sensitivity",
        "return survey.differing_bits",
        "return sum((question.max_set_bits for question in survey))",
        "curator/test_survey_release.py::TestSensitivity::test_against_all_pairs_of_rows",
    ),
    Mutant(
        "the private number of rows has no part in the sensitivity",
        "shoal.curator.counts:sensitivity",
        "1 + sum(",
        "sum(",
        "curator/test_survey_release.py::TestSensitivity::test_against_all_pairs_of_rows",
    ),
    Mutant(
        "the private number of rows is released",
        "shoal.curator.survey_release:release",
        "max(round(noisy.pop()), 1)",
        "noisy.pop() * 0 + counted.rows",
        "curator/test_survey_release.py::TestRelease::test_a_private_number_of_rows_is_a_noisy_count",
    ),
    Mutant(
        "the weights of a number add up to more than one",
        "shoal.curator.counts:_Part._weights",
        "units - above",
        "units",
        "curator/test_survey_release.py::TestSensitivity::test_one_row_alone",
    ),
    Mutant(
        "a delta is asked for and not kept",
        "shoal.curator.noise:gaussian_scale",
        "<= wanted",
        "<= 2 * wanted",
        "curator/test_survey_release.py::TestGaussian::test_delta_by_another_computation",
    ),
    Mutant(
        "OpenDP's delta is not looked at",
        "shoal.curator.noise:gaussian_mechanism",
        "if not Fraction(claimed) <= Fraction(Decimal(delta)):",
        "if False:",
        "curator/test_survey_release.py::TestGaussian::test_too_little_noise_is_refused",
    ),
    Mutant(
        "noise of a survey is drawn before the budget is spent",
        "shoal.curator.survey_release:release",
        "mechanism = noise.mechanism(vector)",
        "mechanism = noise.mechanism(vector)\n    mechanism(vector)",
        "curator/test_survey_release.py::TestBudget::test_nothing_is_drawn_beyond_it",
    ),
    Mutant(
        "the noise of a survey is chosen after a look at its table",
        "shoal.curator.survey_release:release",
        "    noise = CountNoise.choose(asked, relation, *spending)\n"
        "    counted = count_table(asked, table, written)",
        "    counted = count_table(asked, table, written)\n"
        "    noise = CountNoise.choose(asked, relation, *spending)",
        "curator/test_survey_release.py::TestRelease::test_noise_is_chosen_before_the_table_is_read",
    ),
    Mutant(
        "options that were inferred are taken as public",
        "shoal.curator.survey_release:release",
        "if written.inferred and (not options_are_public):",
        "if False:",
        "curator/test_survey_release.py::TestRelease::test_inferred_options_must_be_declared_public",
    ),
    Mutant(
        "the intervals of private shares ignore the noise of the rows",
        "shoal.curator.estimates:NoisyCount.half_width",
        "if self.rows_are_public:",
        "if True:",
        "curator/test_survey_release.py::TestIntervals::test_cover",
    ),
    Mutant(
        "the tail of whole noise is too thin",
        "shoal.theory.laplace:discrete_radius",
        "discrete_tail(m, b) <= miss",
        "discrete_tail(m, b) <= 2 * miss",
        "curator/test_curator.py::TestAccuracy::test_whole_noise_has_its_exact_tail",
    ),
    # Services
    Mutant(
        "a collector publishes a plan that breaks its promise",
        "shoal.server.core.administration:objection",
        "compute_promise(plan).holds",
        "True",
        "server/test_publication.py::test_objections",
    ),
    Mutant(
        "a repeated report is counted again",
        "shoal.server.storage.windows:SeenReports.remember",
        "~self._digests.contain(ordered)",
        "True",
        "server/test_store.py::TestDuplicates::test_in_one_upload",
    ),
    Mutant(
        "a crowd is complete one report early",
        "shoal.server.storage.open_plan:OpenCrowd.is_complete",
        "== self._plan.reports_needed",
        ">= self._plan.reports_needed - 1",
        "server/test_store.py::TestSealing::test_exactly_at_the_crowd",
    ),
    Mutant(
        "the key of a released crowd is kept",
        "shoal.server.storage.open_plan:end_crowd",
        "keys.forget(crowd[0], 'crowd', crowd[1])",
        "pass",
        "server/test_encryption.py::test_the_key_of_a_crowd_goes_with_it",
    ),
    Mutant(
        "any role may do anything",
        "shoal.server.core.tokens:check_token",
        "not token.may(role) or out_of_scope",
        "out_of_scope",
        "server/test_access.py::test_every_operation_with_every_role",
    ),
    Mutant(
        "the key of a shared database does not change",
        "shoal.server.storage.ratchet:Ratchet.rotate",
        "before.next(salt",
        "Step(before.generation + 1, before.key",
        "server/test_postgres_secrets.py::TestRemnants::test_old_states_cannot_be_read_with_the_key_of_today",
    ),
    Mutant(
        "a relay forwards messages in their order",
        "shoal.server.relay.shuffling:shuffled",
        "messages[permutation(len(messages))]",
        "messages",
        "server/relay/test_shuffling.py::test_every_order_is_equally_likely",
    ),
    Mutant(
        "a relay uses a key that the pinned key did not sign",
        "shoal.server.relay.analyzer_client:AnalyzerClient._signed",
        (
            "        if self._pinned == known:\n"
            "            raise\n"
            "        check_signature(self._pinned, reply.content, signature, what)"
        ),
        "",
        "server/relay/test_forwarding.py::TestPinning::test_a_key_that_is_not_pinned_is_not_used",
    ),
    Mutant(
        "a message that came twice is counted twice",
        "shoal.server.analyzer.counting:first_of_each",
        "not same.any()",
        "True",
        "server/analyzer/test_garbage.py::TestFragments::test_one_identifier_in_two_chunks",
    ),
    Mutant(
        "a hollow crowd is released with its promise",
        "shoal.server.analyzer.store:AnalyzerStore.release_crowd",
        "opened.complete >= max(crowd.plan.crowd_size or 0, 1)",
        "opened.complete",
        "server/analyzer/test_garbage.py::TestWholeReports::test_a_hollow_crowd_is_discarded_and_promises_nothing",
    ),
    Mutant(
        "the analyzer keeps the private key of a released crowd",
        "shoal.server.analyzer.plan:AnalyzerPlan.release",
        "            self._end(number, reports=reports, progress=100, release=release)",
        (
            "            kept = self._keys.key(self.plan.id, 'crowd', number)\n"
            "            self._end(number, reports=reports, progress=100, release=release)\n"
            "            sql = \"INSERT INTO facts VALUES ('kept', ?)\"\n"
            "            self._connection.execute(sql, (kept,))"
        ),
        "server/analyzer/test_disk.py::test_after_the_release_neither_key_nor_message_is_left",
    ),
    Mutant(
        "the web demonstration starts without the visitor",
        "shoal.lab.web_demo.people:People.__init__",
        "self._failure: str | None = None",
        ("self._failure: str | None = None\n    self.begin()"),
        "lab/test_web_demo.py::test_everybody_else_waits_for_the_visitor",
    ),
    Mutant(
        "an open crowd shows its reports",
        "shoal.server.storage.open_plan:OpenPlan._progress",
        "progress(crowd.counts.reports, self.plan)",
        "crowd.counts.reports",
        "server/test_open_crowd.py::test_different_open_crowds_look_the_same",
    ),
    Mutant(
        "a relay keeps the key of a forwarded crowd",
        "shoal.server.storage.encryption:Keyring.forget",
        "AND number = ?",
        "AND number = -?",
        "server/relay/test_shared_secrets.py::TestRemnants::test_what_was_forwarded_cannot_be_read_any_more",
    ),
)
