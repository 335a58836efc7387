"""Black-box tests of whether a randomizer or a pipeline does what its plan claims.

`inspect_randomizer` tests any function that randomizes bit vectors, `inspect_pairs` recorded
reports, and `inspect_pipeline` the whole path from originals to a released tally.
"""

from shoal.errors import missing_extra

try:
    from shoal.audit.pipelines import PipelineVerdict, inspect_pipeline
    from shoal.audit.randomizers import BitRate, Verdict, inspect_pairs, inspect_randomizer
except ModuleNotFoundError as error:
    raise missing_extra(error, "shoal.audit") from None

__all__ = [
    "BitRate",
    "PipelineVerdict",
    "Verdict",
    "inspect_pairs",
    "inspect_pipeline",
    "inspect_randomizer",
]
