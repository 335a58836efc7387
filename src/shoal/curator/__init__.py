"""Releases by a trusted curator, who holds everybody's data and adds Laplace noise (LEC 2-3).

What is released
    `release_count`, `release_fraction`, `release_sum`, `release_mean`, `release_histogram`, and
    `release_vector` for anything else whose l1 sensitivity is known. Each gives a `Release`: the
    noisy values, the scale, and how far off they may be (`Accuracy`).

Who is hidden
    `Neighbours` is ``"replace"`` (one person's row is another one; how many rows there are is
    public) or ``"add-remove"`` (the person is there or not).

How much in all
    A `Budget` that a series of releases draws from and cannot overspend.

Rows from files
    `read_columns` reads CSV and Parquet; a `Predicate` says which rows count.

The noise comes from OpenDP, exactly sampled: ``pip install 'shoal[curator]'``.
"""

from shoal.curator.budget import Budget
from shoal.curator.columns import Columns, read_columns
from shoal.curator.predicates import Predicate
from shoal.curator.released import Accuracy, Release
from shoal.curator.releases import (
    release_count,
    release_fraction,
    release_histogram,
    release_mean,
    release_sum,
    release_vector,
)
from shoal.curator.sensitivity import Neighbours

__all__ = [
    "Accuracy",
    "Budget",
    "Columns",
    "Neighbours",
    "Predicate",
    "Release",
    "read_columns",
    "release_count",
    "release_fraction",
    "release_histogram",
    "release_mean",
    "release_sum",
    "release_vector",
]
