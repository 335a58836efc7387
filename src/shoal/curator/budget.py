"""A budget: epsilon and delta that a series of releases draws from and cannot overspend.

Releases about the same people add up: their epsilons, and their deltas (basic composition, a
theorem). Both are decimals, so that 0.1 ten times is 1. Spending takes a lock, rewrites the file
and forces it to disk before noise is drawn: a crash in between has spent without releasing, never
the other way round.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from shoal.curator.noise import Neighbours, check_delta, check_epsilon, check_neighbours
from shoal.errors import InputError, PrivacyRefusal
from shoal.support.checks import check_decimal_text, check_text
from shoal.support.disk import SharedFile
from shoal.support.files import read_json

VERSION = 1
_FIELDS = {"epsilon", "delta", "neighbours", "what"}
_PATIENCE = 30.0  # seconds to wait for another process that is spending


@dataclass(frozen=True)
class Expense:
    """One release and what it spent; a delta of 0 is none."""

    epsilon: str
    delta: str
    neighbours: Neighbours
    what: str


class Budget:
    """Epsilon and delta for a series of releases, in memory or in a file that processes share.

    Parameters
    ----------
    epsilon
        The whole budget, a decimal above 0. It may be left out if the file exists.
    path
        Where the budget is kept. If the file exists its budget is continued; an epsilon or a delta
        that differs from the file's is an error.
    delta
        The whole delta, a decimal between 0 and 1. Without one, only releases without a delta fit.

    Examples
    --------
    >>> budget = Budget("1")
    >>> for _ in range(10):
    ...     budget.spend("0.1", neighbours="replace")
    >>> budget.left
    '0'
    >>> budget.spend("0.1", neighbours="replace")
    Traceback (most recent call last):
    ...
    shoal.errors.PrivacyRefusal: the release would spend 0.1, but only 0 is left of the budget ...
    """

    def __init__(
        self, epsilon: object = None, path: Path | str | None = None, *, delta: object = None
    ) -> None:
        wanted = None if epsilon is None else check_epsilon(epsilon)
        wanted_delta = "0" if delta is None else check_delta(delta)
        self._named = None if path is None else str(path)
        self._file = None if path is None else SharedFile(path, "budget", _PATIENCE, None)
        self._lock = threading.Lock()
        self._spent: tuple[Expense, ...] = ()
        if self._file is None:
            if wanted is None:
                raise InputError("a budget needs an epsilon, its total.")
            self._epsilon, self._delta = wanted, wanted_delta
            return
        with self._locked():
            if self._file.path.exists():
                self._epsilon, self._delta, _ = self._read()
                asked = (("epsilon", wanted), ("delta", None if delta is None else wanted_delta))
                for name, value in asked:
                    there = self._epsilon if name == "epsilon" else self._delta
                    if value is not None and Decimal(value) != Decimal(there):
                        raise InputError(
                            f"the budget in {self._file.path} has {name} {there}, not {value};"
                            f" a budget is not changed once it exists; leave its {name} out."
                        )
                return
            if wanted is None:
                raise InputError(
                    f"there is no budget {self._file.path}; give its epsilon to start one."
                )
            self._epsilon, self._delta = wanted, wanted_delta
            self._write(())

    @property
    def path(self) -> Path | None:
        """The file, or None."""
        return None if self._file is None else self._file.path

    @property
    def epsilon(self) -> str:
        """The whole budget, as a decimal."""
        return self._epsilon

    @property
    def delta(self) -> str:
        """The whole delta, as a decimal; 0 if there is none."""
        return self._delta

    @property
    def releases(self) -> tuple[Expense, ...]:
        """What was spent so far, in order."""
        return self._spent if self._file is None else self._read()[2]

    @property
    def spent(self) -> str:
        """How much of epsilon is spent."""
        return _text(_total(self.releases, "epsilon"))

    @property
    def left(self) -> str:
        """How much of epsilon is left."""
        return _text(_exact(self._epsilon) - _total(self.releases, "epsilon"))

    @property
    def delta_left(self) -> str:
        """How much of delta is left."""
        return _text(_exact(self._delta) - _total(self.releases, "delta"))

    def spend(
        self, epsilon: object, *, neighbours: Neighbours, what: str = "release", delta: object = "0"
    ) -> None:
        """Record that a release spends `epsilon` and `delta`, or refuse; then noise may be drawn.

        All releases of a budget must have the same neighbours, or their epsilons do not add.
        """
        relation, words = check_neighbours(neighbours), check_text("what", what)
        wanted_delta = "0" if delta == "0" else check_delta(delta)
        entry = Expense(check_epsilon(epsilon), wanted_delta, relation, words)
        with self._locked():
            before = self.releases
            for name, amount in (("epsilon", self._epsilon), ("delta", self._delta)):
                wanted, left = getattr(entry, name), _exact(amount) - _total(before, name)
                if _exact(wanted) > left:
                    of = "" if name == "epsilon" else "delta "
                    raise PrivacyRefusal(
                        f"the release would spend {of}{wanted}, but only {of}{_text(left)} is left"
                        f" of the budget of {amount}; nothing was released."
                    )
            if before and before[0].neighbours != neighbours:
                raise InputError(
                    f"this budget is for {before[0].neighbours} neighbours, the release is for"
                    f" {neighbours}; their epsilons do not add. Use another budget."
                )
            if self._file is None:
                self._spent = (*before, entry)
            else:
                self._write((*before, entry))

    def to_json(self) -> dict[str, Any]:
        """Return the budget's state as plain JSON values, decimals as text."""
        releases = self.releases  # read once: another process may spend meanwhile
        spent, deltas = _total(releases, "epsilon"), _total(releases, "delta")
        return {
            "file": self._named,
            "epsilon": self._epsilon,
            "spent": _text(spent),
            "left": _text(_exact(self._epsilon) - spent),
            "delta": self._delta,
            "delta_spent": _text(deltas),
            "delta_left": _text(_exact(self._delta) - deltas),
        }

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            if self._file is None:
                yield
                return
            with self._file.changing():
                yield

    def _read(self) -> tuple[str, str, tuple[Expense, ...]]:
        assert self._file is not None
        document = read_json(self._file.path, "budget", InputError)
        wrong = InputError(f"{self._file.path} is not a budget of this version of Shoal.")
        known = {"version", "epsilon", "delta", "releases"}
        if not isinstance(document, dict) or set(document) != known:
            raise wrong
        entries = document["releases"]
        if document["version"] != VERSION or not isinstance(entries, list):
            raise wrong
        if any(not isinstance(one, dict) or set(one) != _FIELDS for one in entries):
            raise wrong
        spent = (
            Expense(
                *_stored(one), check_neighbours(one["neighbours"]), check_text("what", one["what"])
            )
            for one in entries
        )
        return *_stored(document), tuple(spent)

    def _write(self, releases: tuple[Expense, ...]) -> None:
        assert self._file is not None
        document = {
            "version": VERSION,
            "epsilon": self._epsilon,
            "delta": self._delta,
            "releases": [asdict(entry) for entry in releases],
        }
        self._file.write((json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())


def _stored(entry: dict[str, Any]) -> tuple[str, str]:
    """Return the epsilon and the delta of a release or of the whole budget."""
    epsilon = check_epsilon(check_decimal_text("epsilon", entry["epsilon"], above=0))
    if entry["delta"] == "0":
        return epsilon, "0"
    return epsilon, check_delta(check_decimal_text("delta", entry["delta"], above=0, below=1))


def _exact(text: str) -> Fraction:
    return Fraction(Decimal(text))


def _total(releases: tuple[Expense, ...], name: str) -> Fraction:
    return sum((_exact(getattr(entry, name)) for entry in releases), Fraction(0))


def _text(value: Fraction) -> str:
    """Write a sum of decimals as a decimal: its denominator divides a power of ten."""
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str((value * 10**places).numerator).rjust(places + 1, "0")
    return digits if not places else f"{digits[:-places]}.{digits[-places:]}"
