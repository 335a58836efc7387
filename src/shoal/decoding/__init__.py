"""Text: which of many candidates a crowd answered, and how often.

The bits of a text question say nothing one by one. A candidate is a pattern over all cohorts, and
decoding asks which patterns, and how many people behind each, explain what was counted.

=================  ============================================================================
`decode`           a tally and candidates to counts with intervals, those found marked
`propose`          how many bits, hashes and cohorts a text question should have
`simulate_texts`   the tally of a crowd that does not exist, to try a question out
=================  ============================================================================

Inside: `candidates` (lists, files and columns), `design` (who sets which bit), `fitting` (least
squares), `selecting` (p-values and false discoveries), `inference` (spread and intervals),
`sizing`.
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
