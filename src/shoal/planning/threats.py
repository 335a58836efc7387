"""Observers of a release, the guarantee against each of them, and the effect of fake reports.

*Observers.* The reader of a release sees counts. An analyzer may see every report of a crowd
without its sender. The collector sees each report as it arrives, and so do parties who pool their
knowledge; against them only the local epsilon holds. A relay knows the senders and an analyzer the
reports: the bound against each of them alone is stronger than against a collector. A leader and a
helper (DAP) hold secret shares: neither sees a report. The names in brackets are the trust models
of draft-wang-ppm-differential-privacy: OAMC (one aggregator and most clients are honest), OAOC (one
aggregator and one client), OC (one client). With noise of aggregators the noise of one of them is
enough against the other, who knows its own, and no crowd is relied on.

*Poisoning.* An honest report moves the estimate of an option by one person on average. A fake one
flips nothing: a one moves it by p / (p - q), a zero by -q / (p - q), for every option at once.
Replacing a part s of the people by fakes moves an estimated share by at most s p / (p - q), up
where nobody has the option and down where everybody has, since 1 + q / (p - q) = p / (p - q). Where
a proof limits the set bits to W, a fake moves W options up by p / (p - q) and the others down by
q / (p - q), and in place of another report it moves each by at most 1 / (p - q).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from shoal.errors import InputError
from shoal.planning.share_noise import sigma_of_count
from shoal.protocol.plan import ONE_OPERATOR, Aggregators, Parties, Plan
from shoal.support.checks import check_number
from shoal.support.rounding import round_down, round_up, text_up, truth_text
from shoal.theory.randomized_response import local_q, shift_of_a_fake

if TYPE_CHECKING:
    from shoal.planning.certificate import Certificate


_MUCH = 10.0  # above this local epsilon a single report can move odds by a factor of 22,000
_PLAIN = 0.05  # up to this flip probability such a report is nearly the plain answer
_BARE = 0.01  # up to this flip probability any report is, even of a single bit
_ONE_ADDS = "The leader or the helper adds its noise, whatever the other reports are"
_NO_PROMISE = 0.5  # a proven delta above this is no promise of a crowd


@dataclass(frozen=True)
class Observer:
    """An observer, what they see, and the epsilon and delta that hold against them, rounded up.

    `holds`: `theorem` where the crowd hides a person, `local` where only the flips of a single
    report do, `encrypted` where only encrypted messages are seen, `shared` where only one of
    two shares is. `assumption` is a sentence.
    """

    who: str
    sees: str
    epsilon: float
    delta: float
    holds: Literal["theorem", "local", "encrypted", "shared"]
    assumption: str

    @property
    def guarantee(self) -> str:
        """The guarantee in words, rounded up, with its status."""
        return what_holds(self.to_json())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def what_holds(observer: Mapping[str, Any]) -> str:
    """Return the guarantee against an observer, from its JSON form; rounded up.

    >>> what_holds({"epsilon": 1.0, "delta": 9.87654e-7, "holds": "theorem"})
    'epsilon 1, delta 9.88e-7 (theorem)'
    >>> what_holds({"epsilon": 23.0, "delta": 0.0, "holds": "local"})
    'epsilon 23 (local)'
    """
    delta = f", delta {text_up(observer['delta'], 3)}" if observer["delta"] else ""
    return f"epsilon {text_up(observer['epsilon'])}{delta} ({observer['holds']})"


def observers(certificate: Certificate, epsilon: float) -> list[Observer]:
    """Return the guarantee at an epsilon against each observer of one release.

    >>> from shoal import Flags, Survey
    >>> from shoal.planning.certificate import certify
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> certificate = certify(survey, q="0.00997", crowd_size=10_000, view="counts")
    >>> for one in observers(certificate, 1.0):
    ...     print(one.who, one.holds, one.epsilon, sep=" | ")
    reader of a release | theorem | 1.0
    analyzer of anonymized reports | local | 23.0
    collector | local | 23.0
    any of these colluding | local | 23.0
    """
    found = _observers(certificate, epsilon)
    of_all = _reader_of_all(certificate, found[0])
    return found if of_all is None else [found[0], of_all, *found[1:]]


def _reader_of_all(certificate: Certificate, reader: Observer) -> Observer | None:
    """Return the reader of all releases that a device reports to, if that is several and bounded.

    With permanent flips releases do not compose, and only the local epsilons are claimed.
    """
    reports = certificate.survey.reports_per_device
    if reports is None or reports == 1:
        return None
    who, sees = "reader of all releases", f"all {reports:,} releases that one device may be in"
    if certificate.memory is None and certificate.reports_per_person == 1:
        epsilon = certificate.compose(reports).epsilon(delta=reader.delta)
        words = f"Each release keeps its promise; a device makes {reports:,} reports at most."
        return Observer(who, sees, epsilon, reader.delta, "theorem", words)
    one = _alone(certificate, who, sees)
    return replace(one, epsilon=round_up(reports * certificate.reports_per_person * one.epsilon))


def _observers(certificate: Certificate, epsilon: float) -> list[Observer]:
    proven = certificate.delta(epsilon=epsilon).high
    counts = certificate.view == "counts"
    reader = Observer(
        "reader of a release",
        "how many reports set each bit" if counts else "statistics computed from whole reports",
        epsilon,
        proven,
        "theorem",
        f"{certificate.crowd_size:,} honest people are in the release, and only the release is"
        " seen."
        if certificate.noise is None
        else f"{_ONE_ADDS}; only the release is seen.",
    )
    parties = certificate.parties
    if parties is not None:
        several = _aggregators if isinstance(parties, Aggregators) else _relay_and_analyzer
        between = (
            [_operator(certificate, parties)]
            if parties.one_operator
            else several(certificate, epsilon, proven)
        )
        return [reader, *between, _network(next(iter(parties.origins)))]
    return [
        reader,
        _analyzer(certificate, epsilon, proven),
        _alone(certificate, "collector", "each report as it arrives"),
        _alone(certificate, "any of these colluding", "each report and its sender"),
    ]


def oblivious_collector(certificate: Certificate) -> Observer:
    """Return the guarantee against a collector that receives reports through an oblivious relay."""
    sees = "each report as it arrives, without its sender's address"
    observer = _alone(certificate, "collector, oblivious relay", sees)
    words = (
        "Addresses are hidden if all devices use one key, shipped or compared with the relay's"
        " copy, and if the relay keeps addresses to itself. The relay neither waits for a crowd"
        " nor shuffles, so no crowd is relied on, and times can point to people."
        f" {observer.assumption}"
    )
    return replace(observer, assumption=words)


def _encrypted(who: str, sees: str, assumption: str) -> Observer:
    return Observer(who, sees, 0.0, 0.0, "encrypted", f"HPKE is not broken. {assumption}")


def _network(first: str) -> Observer:
    return _encrypted(
        "network observer",
        f"who sends to the {first} and when; requests are alike in number and size",
        "Times are not hidden: a person who reports only because something happened reveals that it"
        " did.",
    )


def _operator(certificate: Certificate, parties: Parties | Aggregators) -> Observer:
    """Return the one operator of both parties, from whom they hide nothing."""
    who = f"operator of {' and '.join(parties.origins)}"
    both = _alone(certificate, who, "each report and its sender")
    return replace(both, assumption=f"{ONE_OPERATOR.capitalize()}. {both.assumption}")


def _relay_and_analyzer(certificate: Certificate, epsilon: float, proven: float) -> list[Observer]:
    size, reports = certificate.crowd_size, "every report of a crowd, whole, shuffled"
    relied_on = f"The relay forwards {size:,} honest reports at once and reveals no sender."
    return [
        Observer("analyzer", reports, epsilon, proven, "theorem", relied_on),
        _with_fakes(certificate, epsilon, "analyzer with fake devices", reports),
        _encrypted(
            "relay",
            "who sends, when, and encrypted messages of equal length",
            "The relay knows who takes part. If it also reads the release, the bound for readers"
            " applies.",
        ),
        _alone(
            certificate,
            "relay with fake reports",
            f"the release of a crowd in which all but one report are its own, {size - 1:,}",
        ),
        _alone(certificate, "relay and analyzer together", "each report and its sender"),
    ]


def _aggregators(certificate: Certificate, epsilon: float, proven: float) -> list[Observer]:
    size, counts = certificate.crowd_size, "how many reports set each bit"
    prio3 = "Prio3 and HPKE are not broken."
    batch = f"{size:,} honest reports are in the batch"
    pool = f"{batch}; the other aggregator is honest. {prio3}"
    pooled = f"{counts}, and the shares of the leader or of the helper"
    batches = "a batch in which the leader or the helper forged or dropped reports, so that one"
    malicious = _alone(
        certificate,
        "malicious aggregator + collector (OAOC)",
        f"the counts of {batches} honest report is left",
    )
    if certificate.noise is not None:
        counts, batch = f"{counts}, with the noise of both", _ONE_ADDS
        pooled = f"{counts}, and the shares and the noise of the leader or of the helper"
        pool = f"The other aggregator is honest and adds its noise, which alone is enough. {prio3}"
        malicious = replace(
            malicious, epsilon=epsilon, delta=proven, holds="theorem", assumption=pool
        )
    alone = f"The other share stays with the other aggregator, and it reads no release. {prio3}"
    return [
        Observer("collector", counts, epsilon, proven, "theorem", f"{batch}. {prio3}"),
        _shared("leader", "who sends, when, and one of two shares of each report", alone),
        _shared("helper", "the other share of each report, and who fetches its keys, when", alone),
        Observer("aggregator + collector (OAMC)", pooled, epsilon, proven, "theorem", pool),
        _with_fakes(certificate, epsilon, "aggregator + collector + clients (OAMC)", pooled),
        malicious,
        _alone(certificate, "leader + helper (OC)", "each report and its sender"),
    ]


def _shared(who: str, sees: str, assumption: str) -> Observer:
    return Observer(who, sees, 0.0, 0.0, "shared", assumption)


def _with_fakes(certificate: Certificate, epsilon: float, who: str, seen: str) -> Observer:
    """Show a hundredth of the crowd as devices of the observer."""
    most = (certificate.crowd_size - 1) // certificate.reports_per_person
    fakes = min(max(certificate.crowd_size // 100, 1), most)
    sees = f"{seen}; and the reports of {fakes:,} devices of its own"
    left = certificate.with_colluders(fakes)
    delta = left.delta(epsilon=epsilon).high
    is_noised = certificate.noise is not None
    if delta > _NO_PROMISE or not (fakes or is_noised):
        return _alone(certificate, who, sees)
    words = f"{left.crowd_size:,} honest reports hide each other; each further fake removes one."
    if is_noised:
        words = "The noise of the other aggregator hides each report, however many are fake."
    return Observer(who, sees, epsilon, delta, "theorem", words)


def _analyzer(certificate: Certificate, epsilon: float, proven: float) -> Observer:
    who, sees = "analyzer of anonymized reports", "every report of a crowd, whole, shuffled"
    delta = proven if certificate.view == "reports" else _delta_of_reports(certificate, epsilon)
    if delta > _NO_PROMISE:
        observer = _alone(certificate, who, sees)
        words = f"No promise for the crowd; only the local epsilon. {observer.assumption}"
        return replace(observer, assumption=words)
    words = f"{certificate.crowd_size:,} honest reports arrive without their senders."
    return Observer(who, sees, epsilon, delta, "theorem", words)


def _delta_of_reports(certificate: Certificate, epsilon: float) -> float:
    whole = replace(certificate, view="reports", overflow=None, releases=1)
    rough = whole.delta(epsilon=epsilon, rtol=1e-3).high
    return rough if rough > _NO_PROMISE else whole.delta(epsilon=epsilon).high


def _alone(certificate: Certificate, who: str, sees: str) -> Observer:
    """Return an observer against whom only the flips of each report protect."""
    epsilon = round_up(certificate.reports_per_person * certificate.local_epsilon)
    warning = single_report(epsilon, float(certificate.q))
    words = warning or "Devices flip bits as the plan says; no other party is trusted."
    return Observer(who, sees, epsilon, 0.0, "local", words)


def single_report(local_epsilon: float, q: float) -> str | None:
    """Describe how much a single report reveals to an observer; None if it reveals little.

    >>> single_report(23.0, 0.00997)
    'An observer of a single report learns the answer: each bit is true with probability 0.990.'
    >>> single_report(20.0, 0.3775)
    'An observer of a single report learns much about the answer.'
    >>> single_report(6.9, 0.001)
    'An observer of a single report learns the answer: each bit is true with probability 0.999.'
    >>> single_report(5.0, 0.075)
    """
    if local_epsilon <= _MUCH and q > _BARE:
        return None
    if q > _PLAIN:
        return "An observer of a single report learns much about the answer."
    return (
        "An observer of a single report learns the answer: each bit is true with probability"
        f" {truth_text(q)}."
    )


@dataclass(frozen=True)
class Poisoning:
    """The effect of fake reports on the estimates of one plan.

    `up` and `down` are people by which one fake report moves the estimate of an option, `options`
    how many it moves up at once; a proof limits them if it `is_verified`.
    `up_if_local` is the effect under local differential privacy at the promised epsilon; infinite
    at q = 1/2. `reports` and `sigma` are those of a whole crowd, if there is one to estimate from.
    """

    up: float
    down: float
    options: int
    reports: int | None
    sigma: float | None
    epsilon: float
    up_if_local: float
    is_verified: bool = False

    def shift(self, share: float) -> float:
        """Return by how much fakes that replace a share of the people move any estimated share."""
        if not 0 <= check_number("share", share) <= 1:
            raise InputError(f"share must be between 0 and 1, got share={share}.")
        return share * self.up if share else 0.0

    @property
    def fakes_for_one_sigma(self) -> float | None:
        """How many fakes move a count of a whole crowd by one sigma of its noise."""
        return None if self.sigma is None else self.sigma / self.up

    @property
    def sentences(self) -> tuple[str, ...]:
        """The effect in words."""
        if math.isinf(self.up):
            return ("q is 1/2: nothing is estimated, so there is nothing to poison.",)
        moved = (
            f"and up to {self.options} options up at once, as a proof shows"
            if self.is_verified
            else f"and all {self.options} options at once"
        )
        said = [
            f"One fake report moves the estimate of an option by up to {round_up(self.up):.4g}"
            f" people up or {round_up(-self.down):.4g} down, {moved}; an honest one moves it by one"
            " on average.",
            f"Fakes in place of 1 % of the people move an estimated share by up to"
            f" {round_up(self.shift(0.01)):.2%}.",
            f"Under local differential privacy at epsilon {self.epsilon:g} one fake would move it"
            f" by up to {round_up(self.up_if_local):.4g} people.",
        ]
        if self.is_verified:
            said.insert(
                1,
                "In place of another report it moves each estimate by at most"
                f" {round_up(self.up - self.down):.4g} people.",
            )
        if self.fakes_for_one_sigma is not None:
            said.append(
                f"In a crowd of {self.reports:,} reports {self.fakes_for_one_sigma:,.0f} fakes"
                " move a count by one sigma of the noise."
            )
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, null where nothing can be estimated; rounded up."""
        one_sigma = self.fakes_for_one_sigma

        def up(value: float) -> float | None:
            return round_up(value) if math.isfinite(value) else None

        return {
            "up": up(self.up),
            "down": None if math.isinf(self.up) else -round_up(-self.down),
            "options": self.options,
            "one_percent_of_fakes": up(self.shift(0.01)),
            "fakes_for_one_sigma": None if one_sigma is None else round_down(one_sigma),
            "epsilon": self.epsilon,
            "up_if_local": up(self.up_if_local),
            "sentences": list(self.sentences),
        }


def poisoning(plan: Plan) -> Poisoning:
    """Return the effect of fake reports under a plan.

    >>> from shoal import Flags, Survey, plan
    >>> agreed = plan(Survey("s", (Flags("f", ("a", "b")),)), q="0.25")
    >>> can = poisoning(agreed)
    >>> can.up, can.down, can.shift(0.02)
    (1.5, -0.5, 0.03)
    """
    epsilon, q = float(plan.promise.epsilon), float(plan.q)
    crowd = None if plan.crowd_size is None else plan.reports_needed
    up = shift_of_a_fake(q)
    if_local = shift_of_a_fake(local_q(plan.survey.differing_bits, epsilon))
    return Poisoning(
        up,
        1 - up,
        plan.max_weight or plan.bits,
        crowd,
        None if crowd is None or plan.q.is_blind else sigma_of_count(crowd, q, plan.noise),
        epsilon,
        up if plan.promise.kind == "local" else if_local,
        isinstance(plan.parties, Aggregators),
    )
