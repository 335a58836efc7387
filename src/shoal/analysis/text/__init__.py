"""Text: which of many candidates a crowd answered, and how often.

The bits of a text question say nothing one by one. A candidate is a pattern over all cohorts, and
decoding asks which patterns, and how many people behind each, explain the counts.

`decode`           a tally and candidates to counts with intervals, those found marked
`discovery`        the frequent texts without candidates, from pairs of letters
`rappor`           the same for a collection that RAPPOR made
`design`           which bits each candidate sets
`least_squares`    counts by weighted least squares
`selection`        p-values and false discoveries; fit and look again
`inference`        errors and intervals, with unknown texts behind known ones
`results`          what decoding returns: `DecodedTexts`

Exact: the mean of the debiased counts, the variance of flips and cohorts, and, before anything is
fitted, the independence of the p-values of absent texts. Approximate:

* the counts are taken as normal, apart from large residuals, whose distribution is observed;
* the tail of the null distribution is a saddlepoint approximation where a text sets many bits;
* texts that are not fitted are noise of one common variance, `extra`;
* bits far off the fit are left out, and what is not far off on the bits of a popular text, but
  would be elsewhere, is distributed as observed elsewhere;
* fitting what was found and looking again uses the data twice;
* intervals condition on passing the cutoff as if estimates were independent;
* the sum of what was found is corrected by a density estimate (`inference.excess`).

`bench/decoding.py` measures what they come to, `bench/text_coverage.py` how often intervals cover.
"""

from shoal.analysis.text.decode import decode, read_candidates
from shoal.analysis.text.discovery import Discovery, discover
from shoal.analysis.text.results import DecodedText, DecodedTexts

__all__ = ["DecodedText", "DecodedTexts", "Discovery", "decode", "discover", "read_candidates"]
