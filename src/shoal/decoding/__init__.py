"""Text: which of many candidates a crowd answered, and how often.

The bits of a text question say nothing one by one. A candidate is a pattern over all cohorts, and
decoding asks which patterns, and how many people behind each, explain what was counted.

=================  ============================================================================
`decode`           a tally and candidates to counts with intervals, those found marked
`propose`          how many bits, hashes and cohorts a text question should have
`simulate_texts`   the tally of a crowd that does not exist, to try a question out
=================  ============================================================================

Inside: `candidates` (lists, files and columns), `design` (who sets which bit), `fitting` (weighted
least squares), `selecting` (p-values and false discoveries, fit and look again), `hidden` (unknown
texts behind known ones), `inference` (spread and intervals), `results`, `sizing`, `simulating`.

What is exact: the mean of the debiased counts, the variance of lies and cohorts, and, before
anything is fitted, the independence of the p-values of absent texts. What is approximate, by name:

* the counts are taken as normal, apart from large residuals, whose law is observed (`hidden`);
* the tail of the null law is a saddlepoint approximation (`selecting`);
* texts that are not fitted are noise of one common variance, `extra` (`fitting`);
* bits far off the fit are left out (`fitting`), and what is not far off on the bits of a popular
  text, but would be elsewhere, has the law that is seen elsewhere (`hidden`);
* fitting what was found and looking again uses the data twice (`selecting`);
* intervals condition on passing the cutoff as if estimates were independent (`inference`);
* the sum of what was found is corrected by a density estimate (`inference.excess`).

`bench/decoding.py` measures what they come to, `bench/text_coverage.py` how often intervals cover.
"""

from shoal.decoding.candidates import read_candidates
from shoal.decoding.decode import decode
from shoal.decoding.results import Decoded, DecodedText
from shoal.decoding.simulating import simulate_texts
from shoal.decoding.sizing import Proposal, propose

__all__ = [
    "Decoded",
    "DecodedText",
    "Proposal",
    "decode",
    "propose",
    "read_candidates",
    "simulate_texts",
]
