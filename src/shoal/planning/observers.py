"""Who sees what, and what holds against each: the small table of every certificate.

A promise is a statement about an observer. The reader of a release sees counts. An analyzer may see
every report of a crowd without its sender. The collector sees each report as it arrives, and so do
several parties who put together what they know; against them only the local epsilon holds.

A relay and an analyzer share what a collector sees: the relay who sends, the analyzer what. Against
each of them alone more holds than against a collector.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from shoal.planning.composition import group_factor
from shoal.support.rounding import round_up, truth_text

if TYPE_CHECKING:
    from shoal.planning.certificate import Certificate

__all__ = ["Observer", "oblivious_collector", "observers", "single_report"]

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
    single report do. It is `sealed` where an observer has nothing but sealed messages, which tell
    nothing about an answer unless the encryption is broken. `assumption` is what that rests on, in
    a sentence.
    """

    who: str
    sees: str
    epsilon: float
    delta: float
    holds: Literal["theorem", "local", "sealed"]
    assumption: str

    def to_json(self) -> dict[str, Any]:
        """Return the observer as plain JSON values."""
        return asdict(self)


def observers(certificate: Certificate, epsilon: float) -> list[Observer]:
    """Return what holds at an epsilon against each observer of one release.

    Examples
    --------
    >>> from shoal import Flags, Survey
    >>> from shoal.planning.certificate import certify
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> certificate = certify(survey, q="0.00997", crowd_size=10_000, view="counts")
    >>> for one in observers(certificate, 1.0):
    ...     print(one.who, one.holds, one.epsilon, sep=" | ")
    reader of a release | theorem | 1.0
    analyzer of anonymized reports | local | 23.0
    collector | local | 23.0
    several of them together | local | 23.0
    """
    proven = certificate.delta(epsilon=epsilon).high
    reader = Observer(
        "reader of a release",
        "how many reports set each bit"
        if certificate.view == "counts"
        else "what is counted from whole reports",
        epsilon,
        proven,
        "theorem",
        f"{certificate.crowd_size:,} honest people are in the release, and nothing but it is seen.",
    )
    if certificate.parties is not None:
        return [reader, *_parties(certificate, epsilon, proven)]
    return [
        reader,
        _analyzer(certificate, epsilon, proven),
        _alone(certificate, "collector", "each report as it arrives"),
        _alone(certificate, "several of them together", "each report and its sender"),
    ]


def oblivious_collector(certificate: Certificate) -> Observer:
    """Return what holds against a collector that reports reach through an oblivious relay."""
    observer = _alone(
        certificate,
        "collector, oblivious relay",
        "each report as it arrives, without its sender's address",
    )
    words = (
        "Addresses are hidden if all devices use one key, shipped or compared with the relay's"
        " copy, and if the relay keeps addresses to itself. It neither waits for a crowd nor"
        " shuffles, so no crowd is counted on, and times can point to people."
        f" {observer.assumption}"
    )
    return replace(observer, assumption=words)


def _parties(certificate: Certificate, epsilon: float, proven: float) -> list[Observer]:
    """Return what holds against a relay, an analyzer, and those who watch or join them."""
    size, fakes = certificate.crowd_size, _fakes(certificate)
    messages = (
        "every report of a crowd, whole, shuffled"
        if certificate.overflow is None
        else f"{certificate.overflow.messages} messages of each report, shuffled: counts of bits"
    )
    return [
        Observer(
            "analyzer",
            messages,
            epsilon,
            proven,
            "theorem",
            f"The relay forwards {size:,} honest reports at once, and does not say whose.",
        ),
        _with_fakes(certificate, epsilon, messages, fakes),
        Observer(
            "relay",
            "who sends, when, and sealed messages of equal length",
            0.0,
            0.0,
            "sealed",
            "HPKE is not broken. Who takes part is no secret from it. If it reads the release too,"
            " what holds against readers holds.",
        ),
        _alone(
            certificate,
            "relay with fake reports",
            f"the release of a crowd in which all but one report are its own, {size - 1:,}",
        ),
        _alone(certificate, "relay and analyzer together", "each report and its sender"),
        Observer(
            "network observer",
            "who sends to the relay and when; requests are alike in number and size",
            0.0,
            0.0,
            "sealed",
            "HPKE is not broken. Times are not hidden: whoever reports only because something"
            " happened shows that it did.",
        ),
    ]


def _fakes(certificate: Certificate) -> int:
    """Return how many fake devices are shown as an example: a hundredth of the crowd."""
    most = (certificate.crowd_size - 1) // certificate.reports_per_person
    return min(max(certificate.crowd_size // 100, 1), most)


def _with_fakes(certificate: Certificate, epsilon: float, messages: str, fakes: int) -> Observer:
    who = "analyzer with fake devices"
    sees = f"{messages}; and what {fakes:,} of its own devices sent"
    left = certificate.with_colluders(fakes)
    delta = left.delta(epsilon=epsilon).high
    if not fakes or delta > _NO_PROMISE:
        return _alone(certificate, who, sees)
    words = f"{left.crowd_size:,} honest reports hide each other; each more fake is one fewer."
    return Observer(who, sees, epsilon, delta, "theorem", words)


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
        f" {truth_text(q)}."
    )
