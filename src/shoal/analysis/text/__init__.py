"""Text: which of many candidates a crowd answered, and how often.

Single bits of a text question mean nothing. A candidate is a pattern over all cohorts, and decoding
finds which patterns, and how many people behind each, explain the counts.

Exact: the mean of the debiased counts, the variance of flips and cohorts, and, before anything is
fitted, the independence of the p-values of absent texts. Approximate:

* the counts are taken as normal, apart from large residuals, whose distribution is observed;
* the tail of the null distribution is a saddlepoint approximation where a text sets many bits;
* texts that are not fitted are noise of one common variance, `extra`;
* bits far off the fit are left out; residuals that are not far off on the bits of a popular text,
  but would be elsewhere, are distributed as observed elsewhere;
* fitting what was found and looking again uses the data twice;
* intervals condition on passing the cutoff as if estimates were independent;
* the sum of what was found is corrected by a density estimate (`inference.excess`).

`bench/decoding.py` measures their effect, `bench/text_coverage.py` how often intervals cover.
"""

from shoal.analysis.text.decode import decode, read_candidates
from shoal.analysis.text.discovery import Discovery, discover
from shoal.analysis.text.results import DecodedText, DecodedTexts

__all__ = ["DecodedText", "DecodedTexts", "Discovery", "decode", "discover", "read_candidates"]
