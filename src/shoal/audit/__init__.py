"""Evidence from the outside: whether what runs does what was promised.

`inspect_randomizer` questions anything that randomizes bit vectors, ours or a peer's;
`inspect_pipeline` questions the whole path from originals to a released tally.
"""

from shoal.audit.pipelines import PipelineVerdict, inspect_pipeline
from shoal.audit.randomizers import BitRate, Verdict, inspect_pairs, inspect_randomizer

__all__ = [
    "BitRate",
    "PipelineVerdict",
    "Verdict",
    "inspect_pairs",
    "inspect_pipeline",
    "inspect_randomizer",
]
