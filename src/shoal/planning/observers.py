"""Who sees what, and what holds against each: the small table of every certificate.

A promise is a statement about an observer. The reader of a release sees counts. An analyzer may see
every report of a crowd without its sender. The collector sees each report as it arrives, and so do
several parties who put together what they know; against them only the local epsilon holds.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from shoal.planning.composition import group_factor
from shoal.support.rounding import round_up

if TYPE_CHECKING:
    from shoal.planning.certificate import Certificate

__all__ = ["Observer", "observers", "single_report"]

_MUCH = 10.0
"""Above this local epsilon a single report can move odds by a factor of 22,000."""

_PLAIN = 0.05
"""Up to this flip probability such a report is nearly the plain answer."""

_BARE = 0.01
"""Up to this flip probability any report is, even of a single bit."""

_NO_PROMISE = 0.5
"""A proven delta above this is no promise of a crowd."""


@dataclass(frozen=True)
class Observer:
    """Who sees what, and the epsilon and delta that hold against them, rounded up.

    `holds` is `theorem` where the crowd hides a person, and `local` where only the flips of a
    single report do; `assumption` is what that rests on, in a sentence.
    """

    who: str
    sees: str
    epsilon: float
    delta: float
    holds: Literal["theorem", "local"]
    assumption: str

    def to_json(self) -> dict[str, Any]:
        """Return the observer as plain JSON values."""
        return asdict(self)


def observers(certificate: Certificate, epsilon: float) -> list[Observer]:
    """Return what holds at an epsilon against each observer of one release.

    Examples
    --------
    >>> from shoal import Flags, Survey, audit
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> certificate = audit(survey, q="0.00997", crowd_size=10_000, view="counts")
    >>> for one in observers(certificate, 1.0):
    ...     print(one.who, one.holds, one.epsilon, sep=" | ")
    reader of a release | theorem | 1.0
    analyzer of anonymized reports | local | 23.0
    collector | local | 23.0
    several of them together | local | 23.0
    """
    size = f"{certificate.crowd_size:,}"
    counts = certificate.view == "counts"
    proven = certificate.delta(epsilon=epsilon).high
    return [
        Observer(
            "reader of a release",
            "how many reports set each bit" if counts else "what is counted from whole reports",
            epsilon,
            proven,
            "theorem",
            f"{size} honest people are in the release, and nothing but it is seen.",
        ),
        _analyzer(certificate, epsilon, proven),
        _alone(certificate, "collector", "each report as it arrives"),
        _alone(certificate, "several of them together", "each report and its sender"),
    ]


def _analyzer(certificate: Certificate, epsilon: float, proven: float) -> Observer:
    who, sees = "analyzer of anonymized reports", "every report of a crowd, whole, shuffled"
    delta = proven if certificate.view == "reports" else _delta_of_reports(certificate, epsilon)
    if delta > _NO_PROMISE:
        observer = _alone(certificate, who, sees)
        words = f"No crowd promise; local epsilon. {observer.assumption}"
        return Observer(who, sees, observer.epsilon, 0.0, "local", words)
    words = f"{certificate.crowd_size:,} honest reports arrive without their senders."
    return Observer(who, sees, epsilon, delta, "theorem", words)


def _delta_of_reports(certificate: Certificate, epsilon: float) -> float:
    """Return what is proven for whole reports where the plan counts on counts."""
    reports = certificate.reports_per_person
    from shoal.planning.views import bound_of  # the words of a page need none of the theory

    bound = bound_of(certificate.survey, "reports")
    q, part = float(certificate.q), epsilon / reports
    single = bound.proven(certificate.crowd_size, q, part, 1e-3).delta.high
    factor = 1.0 if reports == 1 else group_factor(epsilon, reports)
    return min(single * factor, 1.0) if single else 0.0


def _alone(certificate: Certificate, who: str, sees: str) -> Observer:
    """Return an observer against whom no crowd counts: every report of a person does."""
    epsilon = round_up(certificate.reports_per_person * certificate.local_epsilon)
    warning = single_report(epsilon, float(certificate.q))
    words = warning or "Devices flip bits as the plan says; nobody is trusted."
    return Observer(who, sees, epsilon, 0.0, "local", words)


def single_report(local_epsilon: float, q: float) -> str | None:
    """Return what a single report tells whoever sees it, in words, where that is much.

    >>> single_report(23.0, 0.00997)
    'Whoever sees a single report learns the answer: each bit is true with probability 0.990.'
    >>> single_report(20.0, 0.3775)
    'Whoever sees a single report learns much about the answer.'
    >>> single_report(6.9, 0.001)
    'Whoever sees a single report learns the answer: each bit is true with probability 0.999.'
    >>> single_report(5.0, 0.075)
    """
    if local_epsilon <= _MUCH and q > _BARE:
        return None
    if q > _PLAIN:
        return "Whoever sees a single report learns much about the answer."
    return (
        "Whoever sees a single report learns the answer: each bit is true with probability"
        f" {_truth(q)}."
    )


def _truth(q: float) -> str:
    """Write 1 - q with as many digits as tell it from 1."""
    return f"{1 - q:.{max(2, math.ceil(-math.log10(q)))}f}"
