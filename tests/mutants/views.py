"""The view counts: what its plans release, how many bits differ, and its certified composition."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TALLYING = "analysis/tally.py"
BOUNDS = "planning/views.py"
LAW = "theory/counts/distribution.py"
CURVE = "theory/counts/profile.py"
PROFILE = "theory/counts/profile.py"
COMPOSITION = "theory/composition.py"
DELTA = "theory/counts/delta.py"

LINKS = "analysis/test_views.py::"
PLANS = "planning/test_views.py::"
THEORY = "theory/"
COUNTS = "theory/counts/"
PIECES = "planning/test_fragments.py::"
COUNTS_THEORY = "theory/test_truncation.py::"
ENUMERATION = COUNTS + "test_delta.py::test_brackets_contain_the_enumeration"

MUTANTS = (
    # Nothing else leaves
    Mutant(
        "a histogram of set bits stays in a tally of counts",
        "analysis/count_table.py",
        'plan.bits + 1 if plan.view == "reports" else 0,',
        "plan.bits + 1,",
        LINKS + "TestCounting::test_the_array_that_is_stored_has_room_for_nothing_else",
    ),
    Mutant(
        "a tally of counts tells its set bits",
        TALLYING,
        'self.table.by_set_bits.copy() if self._plan.view == "reports" else None,',
        "self.table.by_set_bits.copy(),",
        LINKS + "TestCounting::test_only_single_bits_are_counted",
    ),
    Mutant(
        "short vectors of a plan for counts are counted whole",
        TALLYING,
        'is_short and plan.view == "reports" if vectors is None',
        "is_short if vectors is None",
        LINKS + "TestCounting::test_the_array_that_is_stored_has_room_for_nothing_else",
    ),
    Mutant(
        "a joint table that is no fragment is counted",
        TALLYING,
        "        if vectors or groups:\n",
        "        if False:\n",
        LINKS + "TestCounting::test_what_links_bits_is_refused",
    ),
    Mutant(
        "a tally without set bits takes joint counts",
        TALLYING,
        'if self.view == "counts" and (self.by_vector is not None or self.joint):',
        "if False:",
        LINKS + "TestCounting::test_a_tally_without_set_bits_takes_no_links",
    ),
    Mutant(
        "a file of counts may link bits",
        "analysis/tally_json.py",
        "        _refuse_links(document)\n",
        "        pass\n",
        LINKS + "TestFiles",
    ),
    Mutant(
        "links that are empty are read",
        "analysis/tally_json.py",
        "if document[name] != nothing]",
        "if document[name]]",
        LINKS + "TestFiles::test_a_file_with_links_is_refused",
    ),
    Mutant(
        "estimates from a tally that shows more than its plan",
        "analysis/estimates.py",
        "    check_view(plan, tally)\n",
        "",
        LINKS + "TestWherePlanAndTallyMeet::test_a_tally_that_shows_more_is_refused",
    ),
    Mutant(
        "a plan for counts declares joint counts",
        "protocol/plan.py",
        'if self.view == "counts" and self.joint:',
        "if False:",
        "protocol/test_plan.py::TestFields::test_a_plan_for_counts_has_no_joint_groups",
    ),
    Mutant(
        "whole reports of a plan for counts are written unasked",
        "device/arrays/report_files.py",
        'plan.view == "counts" and not whole_reports:',
        'plan.view == "counts" and False:',
        "device/test_files.py",
    ),
    # How many bits differ, and for how many the promise is
    Mutant(
        "q for one bit fewer than differ",
        BOUNDS,
        "return self.differing * self.releases",
        "return (self.differing - 1) * self.releases",
        PLANS + "test_reference_values",
    ),
    Mutant(
        "two answers to a choice differ in one bit",
        "protocol/questions.py",
        "return min(2 * self.most_set_bits, self.bits)",
        "return min(self.most_set_bits, self.bits)",
        "planning/test_counts_enumeration.py",
    ),
    Mutant(
        "the cells of a cross cost nothing",
        "protocol/survey.py",
        "return sum(question.differing_bits for question in self.questions)",
        "return sum(question.differing_bits for question in self.questions"
        ' if question.kind != "cross")',
        "planning/test_counts_enumeration.py",
    ),
    Mutant(
        "many releases of counts are as one",
        BOUNDS,
        "return self.differing * self.releases",
        "return self.differing",
        PLANS + "TestManyReleases::test_releases_are_more_bits",
    ),
    Mutant(
        "a plan for reports keeps the promise of counts",
        BOUNDS,
        '    if view == "reports":\n        return ReportsBound',
        "    if False:\n        return ReportsBound",
        PLANS + "TestPromise::test_a_plan_of_reports_does_not_keep_it_with_the_q_of_counts",
    ),
    Mutant(
        "a cohort is as large as they are on average",
        BOUNDS,
        "size, price = smallest_cohort(crowd, self.cohorts, chance / self.releases)",
        "size, price = max(crowd // self.cohorts, 1), 0.0",
        PLANS + "TestCohorts::test_the_smallest_cohort_is_the_crowd",
    ),
    Mutant(
        "a cohort that turns out small costs nothing",
        BOUNDS,
        "return chance * self.releases * (1.0 + 1e-14)",
        "return 0.0",
        PLANS + "TestCohorts",
    ),
    Mutant(
        "a small cohort in one of many releases is paid for once",
        BOUNDS,
        "return chance * self.releases * (1.0 + 1e-14)",
        "return chance * (1.0 + 1e-14)",
        PLANS + "test_a_cohort_may_be_small_in_any_release",
    ),
    Mutant(
        "a bound always counts on the whole crowd",
        BOUNDS,
        "return best_crowd(delta, self._cost(crowd, q, epsilon), crowd)",
        "return crowd if self.cohorts == 1 else self._cohort(crowd, 1e-9)[0]",
        PLANS + "TestLargerCrowds",
    ),
    Mutant(
        "a negligible delta depends on where its losses are cut",
        DELTA,
        "for losses in pairs), least)",
        "for losses in pairs), 0.0)",
        PLANS + "TestLargerCrowds::test_where_delta_is_negligible",
    ),
    Mutant(
        "the best crowd is where the price begins",
        "theory/binomial.py",
        "return min(known, key=lambda t: math.exp(known[t]) + price(t))",
        "return min(known, key=price)",
        THEORY + "test_cohorts.py",
    ),
    Mutant(
        "the attack on counts names the first answer for the second",
        BOUNDS,
        '{"first": crowd - 1 - attack.ones, "second": attack.ones}',
        '{"first": attack.ones, "second": crowd - 1 - attack.ones}',
        "planning/test_counts_enumeration.py",
    ),
    # Reports in pieces
    Mutant(
        "one device pays for what all drop, on one side",
        "theory/binomial.py",
        "return min((1.0 + ratio) * reports * chance * (1.0 + 1e-14 * (1.0 + epsilon)), 1.0)",
        "return min(chance, 1.0)",
        COUNTS_THEORY + "test_every_device_on_both_sides_is_paid_for",
    ),
    Mutant(
        "only the second neighbour pays for what is dropped",
        "theory/binomial.py",
        "return min((1.0 + ratio) * reports",
        "return min(ratio * reports",
        COUNTS_THEORY + "test_every_device_on_both_sides_is_paid_for",
    ),
    Mutant(
        "messages are too few for the largest original",
        "planning/fragments.py",
        "return cls(survey.bits, sum(q.most_set_bits for q in survey), messages)",
        "return cls(survey.bits, 0, messages)",
        PIECES + "TestPlanning::test_the_fewest_messages_within_a_hundredth_of_delta",
    ),
    Mutant(
        "flags in one message fewer at no price",
        "theory/binomial.py",
        "if messages >= bits:",
        "if messages >= bits - 1:",
        COUNTS_THEORY + "test_the_tail_is_just_above_the_exact_one",
    ),
    Mutant(
        "what is dropped is paid for in one release of many",
        "planning/fragments.py",
        "crowd * self.reports * releases, epsilon",
        "crowd * self.reports, epsilon",
        PIECES + "TestBound::test_the_price_is_added_for_every_release",
    ),
    Mutant(
        "with memory one report of many pays for what is dropped",
        "planning/guarantees.py",
        "replace(overflow, q=float(plan.q), reports=reports)",
        "replace(overflow, q=float(plan.q))",
        PIECES + "TestMemory",
    ),
    Mutant(
        "an attack that does not count what is dropped",
        BOUNDS,
        "low = max(attack.delta - self._price(crowd, q, epsilon), 0.0)",
        "low = attack.delta",
        PIECES + "TestBound::test_the_attack_pays_too",
    ),
    Mutant(
        "a fake device spends one message on an option",
        "planning/threats.py",
        "up = coin.shift_of_a_fake(q, messages)",
        "up = coin.shift_of_a_fake(q)",
        PIECES + "TestFakes::test_one_position_many_times",
    ),
    Mutant(
        "screening takes a fake's messages for devices",
        "analysis/screening.py",
        "(ones - fakes * pieces)",
        "(ones - fakes)",
        PIECES + "TestFakes::test_screening_counts_devices_not_messages",
    ),
    Mutant(
        "screening does not allow for what honest devices drop",
        "analysis/screening.py",
        "dropped = 0.0 if overflow is None else tally.reports * overflow.chance(float(plan.q))",
        "dropped = 0.0",
        PIECES + "TestFakes::test_screening_allows_for_what_is_dropped",
    ),
    Mutant(
        "a relay is given up unnoticed",
        "planning/plan_diff.py",
        """            yield (
                True,
                "One collector""",
        """            yield (
                False,
                "One collector""",
        PIECES + "TestDiff",
    ),
    # One bit, every crowd
    Mutant(
        "the worst crowd is all zeros or all ones",
        PROFILE,
        "    first, last = _cut(np.array([0]), np.array([others]), math.ceil(leaves / 4**rounds))\n"
        "    settled, best, ones = np.zeros((3, nodes.size))\n"
        "    tried = np.array([0, others // 2, others])\n",
        "    first, last = np.array([0, others]), np.array([0, others])\n"
        "    settled, best, ones = np.zeros((3, nodes.size))\n"
        "    tried = np.array([0, others])\n",
        COUNTS + "test_profile.py::test_small_crowds_exactly",
    ),
    Mutant(
        "one order of the pair is forgotten",
        PROFILE,
        "    first, last = _cut(np.array([0]), np.array([others]), math.ceil(leaves / 4**rounds))\n"
        "    settled, best, ones = np.zeros((3, nodes.size))\n"
        "    tried = np.array([0, others // 2, others])\n",
        "    first, last = _cut(np.array([0]), np.array([others // 2]), math.ceil(leaves))\n"
        "    settled, best, ones = np.zeros((3, nodes.size))\n"
        "    tried = np.array([0, others // 2])\n",
        COUNTS + "test_profile.py::test_small_crowds_exactly",
    ),
    Mutant(
        "a stretch of crowds is bounded by its first",
        PROFILE,
        "bounds = upper_curves(first, others - last, q, excess)",
        "bounds = upper_curves(first, others - first, q, excess)",
        COUNTS + "test_profile.py::test_stopping_early_is_valid",
    ),
    Mutant(
        "a hockey stick without the error of a probability",
        CURVE,
        "low, high = before - before_error, before + before_error",
        "low, high = before, before",
        COUNTS + "test_curve.py::test_errors_of_the_steps_arrive",
    ),
    Mutant(
        "a hockey stick without the error of the next probability",
        CURVE,
        "here_low, here_high = here - here_error, here + here_error",
        "here_low, here_high = here, here",
        COUNTS + "test_curve.py::test_errors_of_the_steps_arrive",
    ),
    Mutant(
        "a hockey stick without the error of its tail",
        CURVE,
        "np.where(excess_low > 0.0, above - above_error, above + above_error)",
        "above",
        COUNTS + "test_curve.py::test_errors_of_the_steps_arrive",
    ),
    Mutant(
        "what is outside the window of a binomial is dropped",
        LAW,
        "else float(_bernstein(width - 1.0, variance))",
        "else 0.0",
        COUNTS + "test_law.py::test_what_is_left_out_is_in_the_error",
    ),
    Mutant(
        "the round-off of a binomial is dropped",
        LAW,
        "12 * UNIT * (mass.size + 1) + 2.0 * omitted",
        "2.0 * omitted",
        COUNTS + "test_law.py::test_round_off_of_a_window",
    ),
    Mutant(
        "the round-off of a convolution is dropped",
        LAW,
        " + 4 * UNIT * pmf.size",
        "",
        COUNTS + "test_law.py::test_round_off_of_a_convolution",
    ),
    Mutant(
        "products that vanish are nothing",
        LAW,
        "(1e-300 if pmf.min() < 1e-280 else 0.0)",
        "0.0",
        COUNTS + "test_law.py::test_little_noise_against_fractions",
    ),
    Mutant(
        "frequencies that are left out are nothing",
        LAW,
        "keepdims=True) + missing + alias",
        "keepdims=True) + alias",
        COUNTS + "test_law.py::TestTransforms::test_few_frequencies",
    ),
    Mutant(
        "frequencies that are left out of a tail are nothing",
        LAW,
        "tail_error += missing / -math.expm1(-theta) + alias",
        "tail_error += alias",
        COUNTS + "test_law.py::TestTransforms::test_few_frequencies",
    ),
    Mutant(
        "what comes from other periods is nothing",
        LAW,
        "keepdims=True) + missing + alias",
        "keepdims=True) + missing",
        COUNTS + "test_law.py::test_every_error_of_a_transform_arrives",
    ),
    Mutant(
        "what a tail gets from the period before is nothing",
        LAW,
        " + alias + left / -math.expm1(-theta * period)",
        " + alias",
        COUNTS + "test_law.py::TestTransforms::test_short_periods",
    ),
    Mutant(
        "the round-off of a transform is nothing",
        LAW,
        "error = np.sum(weight * doubt, axis=1, keepdims=True) + missing + alias",
        "error = missing + alias",
        COUNTS + "test_law.py::test_every_error_of_a_transform_arrives",
    ),
    Mutant(
        "the round-off of a tail is nothing",
        LAW,
        "tail_error = np.sum(weight * np.abs(tail) * doubt, axis=1, keepdims=True)",
        "tail_error = np.zeros_like(error)",
        COUNTS + "test_law.py::test_every_error_of_a_transform_arrives",
    ),
    # All bits together
    Mutant(
        "the mirrored half of a profile is forgotten",
        COMPOSITION,
        "lower = upper * np.exp(-x) * (1.0 + 4 * UNIT * (1.0 + x))",
        "lower = 0.0 * upper",
        THEORY + "test_composition.py::test_losses_dominate_the_profile_on_both_sides_of_one",
    ),
    Mutant(
        "losses are those of the node below",
        COMPOSITION,
        "return Losses(step, nodes, masses",
        "return Losses(step, nodes - 1, masses",
        ENUMERATION,
    ),
    Mutant(
        "losses beyond the last node are dropped",
        COMPOSITION,
        "masses, float(high[-1]))",
        "masses, 0.0)",
        COUNTS + "test_delta.py::TestMutants::test_truncated_losses_dropped",
    ),
    Mutant(
        "an infinite loss is counted for one bit",
        COMPOSITION,
        "endless = d * losses.infinite * math",
        "endless = losses.infinite * math",
        THEORY + "test_composition.py::TestErrorTerms",
    ),
    Mutant(
        "the round-off of the composition is dropped above",
        COMPOSITION,
        "high = float(np.sum(np.maximum(g + error, 0.0) * factor))",
        "high = float(np.sum(np.maximum(g, 0.0) * factor))",
        THEORY + "test_composition.py::TestErrorTerms::test_round_off_of_the_transform",
    ),
    Mutant(
        "the round-off of the composition is dropped below",
        COMPOSITION,
        "low = float(np.sum(np.maximum(g - error, 0.0) * factor))",
        "low = float(np.sum(np.maximum(g, 0.0) * factor))",
        THEORY + "test_composition.py::TestErrorTerms::test_round_off_of_the_transform",
    ),
    Mutant(
        "the composing transform is exact",
        COMPOSITION,
        "return np.asarray(fft.irfft(result, length)), mean",
        "return np.asarray(fft.irfft(result, length)), 0.0 * mean",
        THEORY + "test_composition.py::TestErrorTerms::test_the_stated_round_off_is_large_enough",
    ),
    Mutant(
        "what leaves the window is dropped above",
        COMPOSITION,
        "high += beyond + moved + endless",
        "high += moved + endless",
        THEORY + "test_composition.py::TestErrorTerms::test_a_window_leaks_on_the_right",
    ),
    Mutant(
        "what wraps round into the window is kept below",
        COMPOSITION,
        "low -= (leak_left + leak_right) * float(factor.max(initial=0.0))",
        "pass",
        THEORY + "test_composition.py::TestErrorTerms::test_windows_leak",
    ),
    Mutant(
        "rounded weights of the composition are exact",
        COMPOSITION,
        "* factor)) * (1.0 + slack)",
        "* factor))",
        THEORY + "test_composition.py::TestErrorTerms::test_round_off_of_the_weights",
    ),
    Mutant(
        "rounded losses of the composition are exact",
        COMPOSITION,
        "high += beyond + moved + endless",
        "high += beyond + endless",
        THEORY + "test_composition.py::TestErrorTerms::test_round_off_of_the_losses",
    ),
    Mutant(
        "a delta that is too small for a float is nothing",
        COMPOSITION,
        "high = min(max(high, 5e-324), whole)",
        "high = min(high, whole)",
        THEORY
        + "test_composition.py::TestCurves::test_what_is_too_small_for_a_float_is_not_nothing",
    ),
    Mutant(
        "a curve is asked above its nodes",
        COMPOSITION,
        "places = (node * step * (1.0 - 2 * UNIT)).tolist()",
        "places = (node * step + step).tolist()",
        THEORY + "test_composition.py::TestCurves::test_losses_dominate_the_curve",
    ),
    Mutant(
        "a curve that does not end has no infinite loss",
        COMPOSITION,
        "return dominating_losses(step, convex_profile(excess, high), node)",
        "return dominating_losses(step, convex_profile(excess, high), node)._replace(infinite=0.0)",
        THEORY + "test_composition.py::TestCurves::test_a_curve_that_does_not_end",
    ),
    Mutant(
        "a bracket may be negative",
        "theory/stop_loss/bracket.py",
        "if not 0 <= low <= high:",
        "if not low <= high:",
        THEORY + "test_bracket.py::test_what_is_no_bracket_cannot_be_made",
    ),
    # What is stated
    Mutant(
        "no crowd is needed for one bit fewer",
        DELTA,
        "return epsilon >= d * log_theta(q) * (1.0 + 1e-14)",
        "return epsilon >= (d - 1) * log_theta(q) * (1.0 + 1e-14)",
        ENUMERATION,
    ),
    Mutant(
        "the attack does not pay for its grid",
        DELTA,
        "epsilon + width).low - chance, 0.0)",
        "epsilon).low, 0.0)",
        COUNTS + "test_delta.py::test_the_attack_pays_for_its_grid",
    ),
)
