"""The tally of a crowd that does not exist, drawn count by count instead of report by report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shoal._check import check_integer
from shoal.discovering.layout import layout_of
from shoal.plans import Plan
from shoal.randomness import simulation_generator
from shoal.tallying import CohortCounts, Tally

__all__ = ["simulate_words"]


def simulate_words(plan: Plan, counts: Mapping[str, int], *, seed: int) -> Tally:
    """Draw the tally of a crowd whose words are known, at the cost of its words.

    Everybody draws a cohort and the lies about different bits are independent, so the counts by
    cohort and bit have exactly the law that reports would give them. The counts by set bits do not:
    they are only made to agree with the others.
    """
    survey, layout = plan.survey, layout_of(plan.survey)
    assert survey.cohorts is not None
    generator, q = simulation_generator(seed), float(plan.q)
    words = list(counts)
    people = np.array([check_integer(f"count of {w!r}", counts[w], lowest=0) for w in words])
    typed = np.array([bool(word.strip()) for word in words])  # no word sets no bit of the text
    drawn = generator.multinomial(people, np.full(survey.cohorts, 1 / survey.cohorts))
    table = survey.text_hash(layout.word).table(words, survey.cohorts).astype(np.int64)
    text, pairs = survey.slice_of(layout.word).start, survey.slice_of(layout.pairs).start
    options = np.array([[layout.option(w, i) for i in range(layout.positions)] for w in words])
    cohorts = []
    for cohort in range(survey.cohorts):
        here = drawn[:, cohort]
        truth = np.zeros(survey.bits, np.int64)
        places = np.sort(table[:, cohort], axis=1)
        for hash_number in range(places.shape[1]):
            # Two hashes of a word may agree; it still sets the bit once.
            fresh = hash_number == 0 or places[:, hash_number] != places[:, hash_number - 1]
            np.add.at(truth, text + places[:, hash_number], here * fresh * typed)
        np.add.at(truth, pairs + options[:, layout.position(cohort)], here)
        reports = int(here.sum())
        ones = generator.binomial(truth, 1 - q) + generator.binomial(reports - truth, q)
        cohorts.append(CohortCounts(reports, ones))
    whole = sum(cohorts[1:], start=cohorts[0])
    low, rest = divmod(int(whole.by_bit.sum()), max(whole.reports, 1))
    by_set_bits = np.zeros(survey.bits + 1, np.int64)
    by_set_bits[low] += whole.reports - rest
    by_set_bits[min(low + 1, survey.bits)] += rest
    return Tally(
        plan.id, whole.reports, whole.by_bit, by_set_bits, simulated=True, cohorts=tuple(cohorts)
    )
