"""From reports to results: counting, intervals, tests."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

COUNTER = "analysis/count_table.py"
INTERVALS = "analysis/intervals.py"
LIMITS = "analysis/intervals.py"

KERNELS = "support/kernels.c"

MUTANTS = (
    # Several crowds, and numbers
    Mutant(
        "the intervals of a trend hold one by one",
        "analysis/trends.py",
        "level = 1 - (1 - self.level) / (len(options) * len(self.crowds))",
        "level = self.level",
        "analysis/test_trends.py::test_every_interval_is_at_its_part_of_the_miss",
    ),
    Mutant(
        "the intervals of a difference hold one by one",
        "analysis/trends.py",
        "level = 1 - (1 - self.level) / len(labels)",
        "level = self.level",
        "analysis/test_trends.py::test_a_difference_is_that_of_the_shares",
    ),
    Mutant(
        "a quantile is where it was estimated",
        "analysis/number_summary.py",
        "if bounds[n + 1][1] >= part and (n == 0 or bounds[n][0] < part)",
        "if n == place",
        "analysis/test_number_summary.py::test_quantiles_are_in_their_ranges_as_often_as_said",
    ),
    Mutant(
        "those who gave no number are counted as if they had",
        "analysis/number_summary.py",
        "if self.question.missing is None:",
        "if True:",
        "analysis/test_number_summary.py::test_quantiles_are_in_their_ranges_as_often_as_said",
    ),
    # RAPPOR's collections
    Mutant(
        "a 1 is as noisy as a 0",
        "analysis/text/least_squares.py",
        "return np.asarray(self.noise + self.noise_of_one * people)",
        "return np.broadcast_to(self.noise, self.debiased.shape)",
        "analysis/test_rappor.py::TestChannel::test_debiased_counts_have_the_stated_mean_and_variance",
    ),
    Mutant(
        "hashes that collide count twice",
        "analysis/text/design.py",
        "somewhere = places < self.bits",
        "somewhere = places <= self.bits",
        "analysis/test_rappor.py::TestChannel::test_hashes_that_collide_set_one_bit",
    ),
    # Counting
    Mutant(
        "256 carries are summed in a byte of the kernel",
        KERNELS,
        "if (++waiting == 255) {",
        "if (++waiting == 256) {",
        "support/test_kernels.py::TestTally::test_unanimous_rows",
    ),
    Mutant(
        "the kernel counts bytes of the next row",
        KERNELS,
        "<< shift",
        "",
        "support/test_kernels.py::TestTally::test_the_same_counts_as_unpacking",
    ),
    Mutant(
        "the kernel reads behind the rows",
        KERNELS,
        "? 0 : ((size_t)(end - rows) - 8) / width + 1;",
        "? 0 : count;",
        "support/test_kernels.py::TestTally::test_nothing_is_read_behind_the_rows",
    ),
    Mutant(
        "a library of another source is used",
        "support/kernels.py",
        "if digest != source_digest():",
        "if False:",
        "support/test_kernels.py::TestLoading::test_a_library_of_another_source_is_not_used",
    ),
    Mutant(
        "set bits are counted twice",
        "analysis/count_table.py",
        "set_bits=not whole",
        "set_bits=True",
        "analysis/test_tallying.py",
    ),
    Mutant(
        "256 rows are summed in a byte",
        COUNTER,
        "range(0, len(bits), 255):  # so many fit in a byte, and bytes add up fast\n"
        "        total += bits[start : start + 255]",
        "range(0, len(bits), 256):\n        total += bits[start : start + 256]",
        "analysis/test_bit_counter.py::TestBitCounter::test_unanimous_rows_short_of_a_block",
    ),
    Mutant(
        "a carry is lost",
        COUNTER,
        "self._add_planes(level, waiting, plane)",
        "self._add_planes(level, waiting, np.zeros_like(plane))",
        "analysis/test_bit_counter.py::TestBitCounter::test_ragged_chunks",
    ),
    Mutant(
        "rows from before are counted again",
        COUNTER,
        "        self._rest[self._rest_bytes : used] = 0\n",
        "",
        "analysis/test_bit_counter.py::TestBitCounter::test_ragged_chunks",
    ),
    Mutant(
        "bytes of the next row are counted",
        COUNTER,
        "if start + 8 > width:",
        "if start + 8 > width + 1:",
        "analysis/test_bit_counter.py::test_count_set_bits",
    ),
    Mutant(
        "a repeated report fills a crowd",
        "analysis/count_table.py",
        "self._reports += len(rows) if weights is None else weights.sum()",
        "self._reports += len(rows)",
        "analysis/test_count_table.py::test_every_count",
    ),
    Mutant(
        "the padding of reports is not looked at",
        "protocol/wire.py",
        "if bool(padding.any()):",
        "if False:",
        "analysis/test_tallying.py::TestMixing::test_padding",
    ),
    Mutant(
        "a report that is twice in a file is counted twice",
        "analysis/report_files.py",
        "if (name := report_id.tobytes()) not in seen:",
        "if (name := report_id.tobytes()):",
        "analysis/test_crowds.py::TestFiles::test_each_window_of_a_batch_is_a_crowd",
    ),
    Mutant(
        "simulated and real reports are counted together",
        "analysis/tally.py",
        "if self.table.reports and len(rows) and simulated != self._simulated:",
        "if False:",
        "analysis/test_tallying.py::TestMixing::test_simulated_reports_do_not_open_a_small_crowd",
    ),
    # Intervals
    Mutant(
        "both ends of an interval at the whole miss",
        INTERVALS,
        "law.low(miss / 2), law.high(miss / 2)",
        "law.low(miss), law.high(miss)",
        "analysis/test_intervals.py::TestExactCrowd::test_coverage_of_fifty",
    ),
    Mutant(
        "simultaneous intervals are each at the level",
        INTERVALS,
        'miss = -math.expm1(math.log(level) / options) if target == "crowd" else miss / options',
        "pass",
        "analysis/test_intervals.py::TestSimultaneous::test_the_product_covers",
    ),
    Mutant(
        "the levels of a population's options multiply",
        INTERVALS,
        'if target == "crowd" else miss / options',
        "if options else miss",
        "analysis/test_intervals.py::TestSimultaneous::test_population_adds_misses",
    ),
    Mutant(
        "an exact limit without the mass that was left out",
        "theory/one_bit/distribution.py",
        "return min(self.at_least * (1 + self.relative_error) + self.omitted, 1.0)",
        "return min(self.at_least, 1.0)",
        "analysis/test_intervals.py::TestTheLaw::test_a_bound_holds_its_error_and_what_was_left_out",
    ),
    Mutant(
        "an exact limit stops at the normal one",
        LIMITS,
        "return smallest(likely, 0, bits, start=round(guess), step=step)",
        "return min(max(round(guess), 0), bits) if step else smallest(likely, 0, bits)",
        "analysis/test_intervals.py::TestExactCrowd::test_coverage_of_fifty",
    ),
    Mutant(
        "a population's sigma is estimated from no ones",
        INTERVALS,
        "within = _crowds_within if target",
        "within = _crowds_within if True or target",
        "analysis/test_intervals.py::TestNormalAndChebyshev"
        "::test_ends_of_a_population_are_so_many_of_their_own_sigmas_away",
    ),
    Mutant(
        "two limits as if they were one normal variable",
        LIMITS,
        "outside(r) - miss",
        "outside(r) / 2 - miss",
        "analysis/test_intervals.py::TestLimits::test_a_staircase_is_left_with_the_miss",
    ),
    Mutant(
        "counts are clipped",
        "analysis/estimates.py",
        "        return (self.ones - q * self.reports) / (1 - 2 * q)",
        "        return max((self.ones - q * self.reports) / (1 - 2 * q), 0.0)",
        "analysis/test_estimating.py::TestUnbiased::test_count_and_sigma_over_the_whole_law",
    ),
    # Tests
    Mutant(
        "each family of traces alarms at the whole level",
        "analysis/screening.py",
        "(len(looked_at) * p + dropped, say)",
        "(p + dropped, say)",
        "analysis/test_screening.py::TestEverySmallWorld::test_honest",
    ),
    Mutant(
        "a share of fakes at a level of its own",
        "analysis/screening.py",
        "limit = alarm / len(looked_at)",
        "limit = alarm",
        "analysis/test_screening.py::TestInterface",
    ),
    Mutant(
        "each bit alarms at the level of all",
        "analysis/screening.py",
        "        p_values = np.concatenate((few, many))\n"
        "        for i, p in _strongest(p_values):\n"
        "            yield Trace(p * p_values.size,",
        "        p_values = np.concatenate((few, many))\n"
        "        for i, p in _strongest(p_values):\n"
        "            yield Trace(p,",
        "analysis/test_screening.py::TestEverySmallWorld::test_honest",
    ),
    Mutant(
        "texts are found at a level of their own each",
        "analysis/text/selection.py",
        "np.log(fdr * ranks / len(log_p)))",
        "np.log(fdr * np.ones(len(ranks))))",
        "analysis/test_text.py::TestParts::test_discoveries_by_the_definition",
    ),
    Mutant(
        "the tail of a text's score is that of a normal law",
        "analysis/text/selection.py",
        "points.append((score, w + np.log(u / w) / w))",
        "points.append((score, score / sigma))",
        "analysis/test_text.py::TestParts::test_null_law",
    ),
    Mutant(
        "the interval of a text does not know that it was chosen",
        "analysis/text/inference.py",
        "return np.asarray(np.minimum(low, ordinary))",
        "return np.asarray(ordinary)",
        "analysis/test_text.py::TestParts::test_conditional_interval_covers_what_is_found",
    ),
    Mutant(
        "a test of independence without Fisher's conditioning",
        "analysis/association_tables.py",
        "return Independence(statistic, degrees, self._fisher(), ",
        "return Independence(statistic, degrees, float(chi2.sf(statistic, degrees)), ",
        "analysis/test_association.py::TestIndependence"
        "::test_level_of_two_options_in_a_small_crowd",
    ),
    Mutant(
        "a test of independence with half the noise of the flips",
        "analysis/association_tables.py",
        "covariance = v * np.eye(size) + np.diag(shares)",
        "covariance = v / 2 * np.eye(size) + np.diag(shares)",
        "analysis/test_association.py::TestIndependence::test_size",
    ),
    Mutant(
        "a test of crossed questions that forgets who was drawn",
        "analysis/independence.py",
        "covariance = np.diag(self.expected.reshape(-1)) + self.noise",
        "covariance = self.noise",
        "analysis/test_cross_tables.py::TestIndependence::test_size",
    ),
    Mutant(
        "a test of crossed questions with half the noise of the flips",
        "analysis/independence.py",
        "covariance = np.diag(self.expected.reshape(-1)) + self.noise",
        "covariance = np.diag(self.expected.reshape(-1)) + self.noise / 2",
        "analysis/test_cross_tables.py::TestIndependence::test_size",
    ),
    Mutant(
        "a part of a row whose two limits share no miss",
        "analysis/contrasts.py",
        "rest, corners = _crowd(ones, first, len(others)), staircase(miss / 2, FEW_STEPS)",
        "rest, corners = _crowd(ones, first, len(others)), ((miss, miss),)",
        "analysis/test_cross_tables.py::TestShares::test_a_part_covers_at_least_its_level",
    ),
)
