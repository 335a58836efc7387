"""A trusted curator, who holds everybody's data and adds noise (LEC 2-3).

- `release` releases a whole survey of a table from one budget: a `SurveyRelease` has every
  question, cross table, mean and quantile, and writes the page.
- `Curator` answers single queries: it holds a table, the neighbours and a budget; its methods
  `count`, `fraction`, `sum`, `mean`, `histogram` and `vector` (any l1 sensitivity you know) each
  give a `Release` with the noisy values, the scale, and how far off they may be (`Accuracy`).
- `Neighbours` is ``"replace"`` (one person's row becomes another; how many rows there are is
  public) or ``"add-remove"`` (the person is there or not).
- `Budget` is the epsilon and delta that a series of releases draws from and cannot overspend.
- `Predicate` says which rows count.

The noise comes from OpenDP, exactly sampled: ``pip install 'shoal[curator]'``.
"""

from shoal.errors import missing_extra

try:
    from shoal.curator.budget import Budget
    from shoal.curator.columns import Predicate
    from shoal.curator.curator import Curator
    from shoal.curator.noise import Neighbours
    from shoal.curator.query import Accuracy, Release
    from shoal.curator.survey_release import SurveyRelease, release
except ModuleNotFoundError as error:
    raise missing_extra(error, "shoal.curator") from None

__all__ = [
    "Accuracy",
    "Budget",
    "Curator",
    "Neighbours",
    "Predicate",
    "Release",
    "SurveyRelease",
    "release",
]
