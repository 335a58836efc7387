"""Text: which of many candidates a crowd answered, and how often.

The bits of a text question say nothing one by one. A candidate is a pattern over all cohorts, and
decoding asks which patterns, and how many people behind each, explain what was counted.

=================  ============================================================================
`decode`           a tally and candidates to counts with intervals, those found marked
`discover`         the frequent texts without candidates, from pairs of letters
=================  ============================================================================

Inside, in the order of the data's way:

`candidates`       lists, files and columns of candidates, each text once
`design`           which bits each candidate sets
`fitting`          counts by weighted least squares
`null_distribution`         what a text that nobody answered looks like
`selection`        p-values and false discoveries; fit and look again
`hidden`           unknown texts behind known ones
`inference`        errors and intervals
`decode`           all of these in a row
`results`          what decoding returns: `DecodedTexts`
`chains`           without candidates: frequent pairs of letters, chained into words
`confirmation`     whether a word that nobody has could show so many people
`discovery`        chain, decode and confirm: a `Discovery`

What is exact: the mean of the debiased counts, the variance of flips and cohorts, and, before
anything is fitted, the independence of the p-values of absent texts. What is approximate, by name:

* the counts are taken as normal, apart from large residuals, whose law is observed (`hidden`);
* the tail of the null distribution is a saddlepoint approximation where a text sets many bits
  (`selection`);
* texts that are not fitted are noise of one common variance, `extra` (`fitting`);
* bits far off the fit are left out (`fitting`), and what is not far off on the bits of a popular
  text, but would be elsewhere, has the law that is seen elsewhere (`hidden`);
* fitting what was found and looking again uses the data twice (`selection`);
* intervals condition on passing the cutoff as if estimates were independent (`inference`);
* the sum of what was found is corrected by a density estimate (`inference.excess`).

`bench/decoding.py` measures what they come to, `bench/text_coverage.py` how often intervals cover.
"""

from shoal.analysis.text.decode import decode, read_candidates
from shoal.analysis.text.discovery import Discovery, discover
from shoal.analysis.text.results import DecodedText, DecodedTexts

__all__ = [
    "DecodedText",
    "DecodedTexts",
    "Discovery",
    "decode",
    "discover",
    "read_candidates",
]
