"""The certificate of a plan: what it guarantees, against whom, and at what price in noise.

*Local* holds for each report with no crowd and no trust. *Proven* is (epsilon, delta)-differential
privacy of the released tally for every collection of answers, a theorem. The *attack* is a crowd
that is at least this bad: proven and attack bracket the truth. SDP's (epsilon, eta) for homogeneous
crowds is *sufficient*: an attack reaches it, so it is never a guarantee. The certificate's *view*
says whether the observer sees whole reports or counts; `observers` lists everybody else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from shoal.errors import InputError, PrivacyRefusal, require
from shoal.planning.bounds import (
    Bound,
    CountsBound,
    Overflow,
    ReportsBound,
    bound_of,
    domain_of,
    overflow_of,
)
from shoal.planning.composition import Composition, group_factor, part_of
from shoal.planning.share_noise import NoiseBound, sigma_of_count
from shoal.planning.threats import observers
from shoal.protocol.flip_probability import FlipProbability, exact_fraction
from shoal.protocol.plan import (
    EXPERIMENTAL,
    ONE_OPERATOR,
    VIEWS,
    Aggregators,
    Memory,
    Parties,
    Plan,
    ShareNoise,
    View,
    operator_warnings,
)
from shoal.protocol.promise import ComputedPromise, promise_warnings, refusal_of
from shoal.protocol.survey import Survey
from shoal.support.checks import check_integer, check_number, check_one_of, takes
from shoal.support.results import Displayed, Section
from shoal.support.rounding import round_up, text_up
from shoal.theory import homogeneous
from shoal.theory.brackets import Bracket
from shoal.theory.calibration import smallest
from shoal.theory.proven import Attack, Method, Proven
from shoal.theory.randomized_response import count_sigma, local_epsilon, local_q, shift_of_a_fake
from shoal.theory.rigorous import NotCoveredError, rigorous_delta
from shoal.theory.sufficient import Sufficient, gap_312, sufficient_eta

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Certificate", "certify", "check_promise", "compute_promise"]

_QUICK = 1e-3
"""A bracket of this width takes milliseconds."""

_NEAR_MISS = 1.001
"""A delta up to this factor above the promised one is computed again, more finely."""


@takes(plan=Plan | Survey)
def certify(
    plan: Plan | Survey,
    *,
    q: object = None,
    crowd_size: int | None = None,
    view: View | None = None,
    max_weight: int | None = None,
    rigorous: bool = False,
) -> Certificate:
    """Return the certificate of a plan, or of a survey with a given q, crowd and view.

    Without a view a survey is audited for `reports`. In the view `counts` only `max_weight` bits of
    a report may be set, as with a leader and a helper. With `rigorous` the proven delta is enclosed
    in ball arithmetic, independently of the usual engine; that takes seconds and needs the extra
    `rigorous`.

    >>> from shoal import Flags, Survey
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> certificate = certify(survey, q="0.2031", crowd_size=10_000)
    >>> certificate.delta(epsilon=1).high < 1e-6
    True
    >>> round(certificate.local_epsilon, 2)
    6.84
    >>> certify(survey, q="0.00997", crowd_size=10_000, view="counts").delta(epsilon=1).high < 1e-6
    True
    """
    if rigorous:
        require("flint", purpose="rigorous=True")
    if isinstance(plan, Plan):
        if any(given is not None for given in (q, crowd_size, view, max_weight)):
            raise InputError(
                "a plan has its own q, crowd size, view and max_weight; audit its survey to use"
                " others."
            )
        if plan.crowd_size is None:
            raise InputError("the plan has no crowd; audit its survey with a crowd_size.")
        check_crowd_hides(plan)
        return Certificate(
            plan.survey,
            plan.q.fraction,
            plan.crowd_size,
            plan.max_reports_per_person,
            plan.honest_fraction,
            plan.memory,
            view=plan.view,
            cohorts=plan.cohorts,
            parties=plan.parties,
            overflow=overflow_of(plan),
            promised=plan.promise.epsilon,
            rigorous=rigorous,
        )
    if q is None or crowd_size is None:
        raise InputError("to audit a survey give q= and crowd_size=.")
    value = q.fraction if isinstance(q, FlipProbability) else exact_fraction(q)
    size = check_integer("crowd_size", crowd_size, lowest=1)
    overflow = None
    if max_weight is not None:
        check_integer("max_weight", max_weight, lowest=1, highest=plan.bits)
        overflow = Overflow.of(plan, max_weight)
    return Certificate(
        plan,
        value,
        size,
        view=view or "reports",
        cohorts=plan.cohorts,
        overflow=overflow,
        rigorous=rigorous,
    )


def check_crowd_hides(plan: Plan) -> None:
    """Refuse a plan with memory that several reports or a cohort share: nothing is proven."""
    if plan.crowd_size is None or plan.memory is None:
        return
    if plan.max_reports_per_person > 1:
        raise PrivacyRefusal(
            "with memory a person's reports share permanent flips, so nothing is proven for"
            f" {plan.max_reports_per_person} reports in one release; allow only 1."
        )
    if plan.cohorts is not None:
        raise PrivacyRefusal(
            "a remembered vector belongs to one cohort, and a cohort that a device keeps splits"
            f" the crowd of {plan.crowd_size}, so that nothing is proven; plan without memory."
        )


@dataclass(frozen=True, repr=False)
class Certificate(Displayed):
    """What a flip probability and a crowd promise for a survey.

    Brackets are ``(low, high)``; the promise is the high end. With several reports per person the
    proven delta is that of group privacy; the attack stays that of one report. `crowd_size` counts
    the honest reports that hide each other, without colluders; with an honest fraction h a release
    holds more: those reports and the colluders' divided by h. With memory everything here is about
    one release; `guarantees_over_time` covers more. In the counts view a certificate can cover
    several `releases` with fresh flips. `parties` are a relay and an analyzer, or a leader and a
    helper; `overflow` is set if only so many bits of a report may be set. `promised` is the epsilon
    of the plan, if it is of one. If `rigorous`, delta and epsilon are proven in ball arithmetic.
    """

    survey: Survey
    q: Fraction
    crowd_size: int
    reports_per_person: int = 1
    honest_fraction: str | None = None
    memory: Memory | None = None
    colluders: int = 0
    view: View = "reports"
    cohorts: int | None = None
    releases: int = 1
    parties: Parties | Aggregators | None = None
    overflow: Overflow | None = None
    promised: str | None = None
    rigorous: bool = False

    def __post_init__(self) -> None:
        check_one_of("view", self.view, VIEWS)
        if self.releases > 1 and self.view == "reports":
            raise InputError("whole reports of several releases compose with compose(releases).")
        if self.overflow is not None and (self.view == "reports" or self.cohorts not in (None, 1)):
            raise InputError("only reports with view counts and one cohort have a max_weight.")

    def _headline(self) -> str:
        return (
            f"{self.survey.name}: q = {self._q:.5g}, a crowd of {self.crowd_size:,}, view"
            f" {self.view}"
        )

    @property
    def _shown_epsilon(self) -> float:
        return float(self.promised or 1)

    def _sections(self) -> list[Section]:
        at = self._shown_epsilon
        rows = [
            (one.who, one.guarantee, f"sees {one.sees}", one.assumption)
            for one in observers(self._usual, at)
        ]
        title = f"Guarantee against each observer of a release, at epsilon {text_up(at)}"
        return [Section(("observer", "guarantee", "sees", "assumption"), rows, title, prose=True)]

    def plot(self, epsilon: float | None = None) -> Figure:
        """Draw delta at each epsilon: proven, and what an attack reaches; needs matplotlib.

        `epsilon` is marked; by default that of the plan, or 1.
        """
        from shoal.reports.plots.plans import plot_privacy

        return plot_privacy(self, epsilon=self._shown_epsilon if epsilon is None else epsilon)

    @property
    def noise(self) -> ShareNoise | None:
        """The noise that a leader and a helper each add, or None."""
        return self.parties.noise if isinstance(self.parties, Aggregators) else None

    @cached_property
    def bound(self) -> Bound | NoiseBound:
        """The bound of the certificate's view for one report of a person."""
        if self.noise is not None:
            differing = self.survey.differing_bits
            return NoiseBound(differing, self.noise, self.overflow, self.releases)
        more: Any = {"cohorts": self.cohorts, "releases": self.releases, "overflow": self.overflow}
        return bound_of(self.survey, self.view, **more)

    @property
    def _q(self) -> float:
        return float(self.q)

    @property
    def _released(self) -> int:
        """The number of reports in a release, with those of colluders and the dishonest part."""
        honest = Fraction(self.honest_fraction or "1")
        return math.ceil((self.crowd_size + self.colluders * self.reports_per_person) / honest)

    @property
    def one_operator(self) -> bool:
        """Whether the same people run both parties, which then hide nothing from them."""
        return self.parties is not None and self.parties.one_operator

    @property
    def local_epsilon(self) -> float:
        """The epsilon of one report by itself, against the collector too."""
        return local_epsilon(self.survey.differing_bits, self._q)

    @property
    def sigma(self) -> float:
        """The standard deviation of an estimated count in this crowd (SDP 4)."""
        return sigma_of_count(self.crowd_size, self._q, self.noise)

    @property
    def shift_of_a_fake(self) -> float:
        """By how many people one fake report can shift a count: p / (p - q)."""
        return shift_of_a_fake(self._q)

    def delta(self, *, epsilon: float, rtol: float = 1e-4) -> Bracket:
        """Return the proven delta at an epsilon."""
        return self.proven(epsilon, rtol).delta

    def proven(self, epsilon: float, rtol: float = 1e-4) -> Proven:
        """Return the proven delta at an epsilon and the method that proves it."""
        if self.rigorous:
            return self._enclosed(_checked_epsilon(epsilon))
        size, checked = self.reports_per_person, _checked_epsilon(epsilon)
        if size == 1:
            return self.bound.proven(self.crowd_size, self._q, checked, rtol)
        single = self.bound.proven(self.crowd_size, self._q, part_of(checked, size), rtol)
        if single.delta.high == 0.0:
            return single
        factor = group_factor(checked, size)
        if math.isinf(factor):
            return Proven(Bracket(0.0, 1.0), single.method)
        return Proven(single.delta.times(factor).capped(1.0), single.method)

    def _enclosed(self, epsilon: float) -> Proven:
        usual = self._usual.proven(epsilon)
        try:
            enclosed = rigorous_delta(self._claim(epsilon, usual.delta.high, usual.method))
        except NotCoveredError as reason:
            raise InputError(f"a rigorous certificate is not possible here: {reason}.") from reason
        return Proven(enclosed, usual.method)

    @property
    def _usual(self) -> Certificate:
        return replace(self, rigorous=False)

    def epsilon(self, *, delta: float, rough: bool = False) -> float:
        """Return the smallest proven epsilon at a delta, rounded up; by quick bounds if `rough`."""
        if not 0 <= check_number("delta", delta) < 1:
            raise InputError(f"delta must be in [0, 1), got delta={delta}.")
        if self.rigorous:
            epsilon, step = self._usual.epsilon(delta=delta), 1e-5
            while self.delta(epsilon=epsilon).high > delta:
                epsilon, step = epsilon * (1.0 + step), 2.0 * step
            return epsilon
        if self.reports_per_person == 1:
            if isinstance(self.bound, ReportsBound):
                return self.bound.epsilon(self.crowd_size, self._q, delta, rough=rough)
            return self.bound.epsilon(self.crowd_size, self._q, delta)
        reports = self.reports_per_person * self.releases
        local = reports * self.local_epsilon * (1 + 1e-12)

        def keeps(epsilon: float) -> bool:
            return self.delta(epsilon=epsilon, rtol=_QUICK).high <= delta

        return smallest(keeps, 0.0, local, start=local / 2, rtol=1e-6)

    def attack(self, epsilon: float, rtol: float = 1e-4) -> Attack:
        """Return the worst crowd found and its delta: a lower bound of the truth."""
        return self.bound.attack(self.crowd_size, self._q, _checked_epsilon(epsilon), rtol)

    def eta(self, *, epsilon: float) -> Bracket:
        """Return SDP's eta for the worst homogeneous crowd: sufficient, not proven."""
        return self.worst_homogeneous(epsilon).eta

    def worst_homogeneous(self, epsilon: float) -> Sufficient:
        """Return the homogeneous crowd with the largest eta, and whether all were compared."""
        if self.view == "counts":
            raise InputError("eta is about whole reports; in the counts view delta is proven.")
        domain = domain_of(self.survey)
        return sufficient_eta(domain, self.crowd_size, self._q, _checked_epsilon(epsilon))

    def with_colluders(self, count: int) -> Certificate:
        """Return the certificate if `count` people tell the attacker all that they sent.

        >>> from shoal import Flags, Survey
        >>> survey = Survey("browser", (Flags("features", ("a", "b")),))
        >>> certify(survey, q="0.2", crowd_size=1000).with_colluders(100).crowd_size
        900
        """
        most = (self.crowd_size - 1) // self.reports_per_person
        check_integer("colluders", count, lowest=0, highest=most)
        left = self.crowd_size - count * self.reports_per_person
        return replace(self, crowd_size=left, colluders=self.colluders + count)

    def compose(self, releases: int) -> Composition:
        """Return what several releases promise together, each with fresh flips."""
        if self.memory is not None:
            raise PrivacyRefusal(
                "releases with permanent flips do not compose: their coins are not fresh; use"
                " shoal.planning.guarantees for bounds over time."
            )
        if self.rigorous:
            raise InputError("rigorous bounds are about one release; compose without rigorous.")
        return Composition(self, releases)

    def group_delta(self, *, epsilon: float, reports: int) -> float:
        """Return the proven delta for a person with several reports in one release."""
        check_integer("reports", reports, lowest=1)
        return replace(self, reports_per_person=reports).delta(epsilon=epsilon).high

    def gain_over_local(self, epsilon: float) -> float:
        """Return how many times larger sigma is where `epsilon` must hold locally."""
        q = local_q(self.survey.differing_bits, _checked_epsilon(epsilon))
        return count_sigma(self.crowd_size, q) / self.sigma

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The conditions of the proven promise."""
        reports = self.reports_per_person
        each = "t" if reports == 1 else f"{reports} t"
        flips = "fresh flips; each further release reveals more."
        if self.memory is not None:
            flips = (
                "flips that are partly permanent; more releases do not compose; the guarantees over"
                " time cover them."
            )
        alone = "the collector itself" if self.parties is None else "both parties together"
        if isinstance(self.parties, Aggregators):
            malicious = ", and a malicious one with the collector,"
            alone = f"leader and helper together{malicious if self.noise is None else ''}"
        if self.one_operator:
            alone = "the operator of both parties"
        others = f"The other people are honest; with t colluders the crowd is smaller by {each}."
        if self.noise is not None:
            flips = "fresh noise for each crowd; each further release reveals more."
            others = "No other person need be honest: the noise hides one report as well as many."
        honest = []
        if self.honest_fraction not in (None, "1"):
            honest.append(
                f"At least a part {self.honest_fraction} of every release is honest,"
                f" {self.crowd_size:,} reports."
            )
        return (
            "The promise compares any two answers that one person could give.",
            f"At least {self._released:,} reports are released together; their number is public.",
            "The reports are perfectly anonymized: no report can be linked to its sender."
            if self.view == "reports"
            else "Only how many reports set each bit is seen: no single report, and nothing that"
            " links the bits of one.",
            f"{self.colluders:,} people reveal their reports; {self.crowd_size:,} reports remain to"
            " hide a person."
            if self.colluders and self.noise is None
            else others,
            f"Each person sends at most {reports} report{'s' * (reports > 1)} per release, with"
            f" {flips}",
            *honest,
            *self._assumptions_of_parties(),
            *self._assumptions_of_devices(),
            f"Against {alone} only the local epsilon of {round_up(self.local_epsilon)} holds.",
        )

    def _assumptions_of_devices(self) -> list[str]:
        """Say what questions about a device's past add: how often it reports, and when it began."""
        if not self.survey.about_past:
            return []
        most = self.survey.reports_per_device
        often = "one report in every window" if most is None else f"{most:,} reports in all"
        often = "one report in all" if most == 1 else often
        return [
            f"A device answers from its own past and makes {often}. After its data are deleted,"
            " restored or installed anew it is a new device: the reports of both compose.",
            "No epsilon covers when a device reports: the network, the collector or the relay"
            " learns from the window of its report roughly when its use began.",
        ]

    def _assumptions_of_parties(self) -> list[str]:
        words, shared = [], isinstance(self.parties, Aggregators)
        if self.one_operator:
            words.append(
                f"The same people run both parties ({ONE_OPERATOR}); the promise of a crowd holds"
                " against those who see only a release."
            )
        elif shared:
            words.append(
                "The leader and the helper do not share what they see; a share reveals nothing, and"
                " only its aggregator can decrypt it (Prio3 and HPKE, computational assumptions)."
            )
        elif self.parties is not None:
            words.append(
                "The relay and the analyzer do not share what they see; only the analyzer can"
                " decrypt messages encrypted for it (HPKE, a computational assumption)."
            )
        if self.noise is not None:
            words.append(
                "The leader or the helper adds its noise, drawn once for a crowd and stored before"
                " its share is given out; only one is counted on, for the other may be the"
                " attacker."
            )
        if self.overflow is not None:
            chance, limit = self.overflow.chance(self._q), self.overflow.max_weight
            bias = self.overflow.bias(self._released, self._q)
            moved = f" and lowers a count by at most {text_up(bias, 3)} people on average"
            words.append(
                f"A report has at most {limit} set bits; one with more set bits"
                f" drops some, with probability at most {text_up(chance, 3)}, which is paid for in"
                f" delta{moved if math.isfinite(bias) else ''}."
                if chance
                else f"A report has at most {limit} set bits, as many as it has bits: nothing is"
                " dropped."
            )
        if shared:
            words.append(EXPERIMENTAL)
        return words

    def to_json(
        self, *, epsilon: float | None = None, delta: float | None = None
    ) -> dict[str, Any]:
        """Return the certificate at one epsilon, or at the proven epsilon of a delta."""
        if (epsilon is None) == (delta is None):
            raise InputError("give either epsilon or delta.")
        at = self.epsilon(delta=delta) if delta is not None else epsilon
        assert at is not None
        promised, attack = self.proven(at), self.attack(at)
        low = promised.delta.low if self.view == "reports" else attack.delta.low
        delta = promised.delta.high if delta is None else delta
        return {
            **self._claim(at, delta, promised.method),
            "rigorous": self.rigorous,
            "proven": {"delta": [low, promised.delta.high], "method": promised.method},
            "attack": {"delta": list(attack.delta), "crowd": attack.crowd},
            "observers": [observer.to_json() for observer in observers(self._usual, at)],
            **self._whole_reports(at),
            "sigma_count": None if math.isinf(self.sigma) else self.sigma,
            "gain_over_local": _finite(self.gain_over_local(at)),
            "shift_of_a_fake": None if math.isinf(self.sigma) else self.shift_of_a_fake,
            "assumptions": list(self.assumptions),
            "warnings": [
                *operator_warnings(self.parties),
                *promise_warnings(at, round_up(delta), self.crowd_size),
            ],
        }

    def _claim(self, epsilon: float, delta: float, method: Method) -> dict[str, Any]:
        """Return all that a verifier of this certificate reads."""
        return {
            "view": self.view,
            "parties": None if self.parties is None else self.parties.to_json(),
            "dropped": self._dropped(epsilon),
            "domain": [list(block) for block in domain_of(self.survey)],
            "q": self._q,
            "crowd_size": self.crowd_size,
            "relies_on": self._relied_on(epsilon),
            "reports_per_person": self.reports_per_person,
            "releases": self.releases,
            "cohorts": self.cohorts or 1,
            "epsilon": epsilon,
            "delta": delta,
            "proven": {"method": method},
            "local": {"epsilon": round_up(self.local_epsilon)},
        }

    def _dropped(self, epsilon: float) -> dict[str, Any] | None:
        """Return the price of dropped bits, for as many people as the proven delta relies on."""
        if self.overflow is None:
            return None
        if isinstance(self.bound, NoiseBound):
            return self.overflow.to_json(1, self._released, self._q, 0.0)
        people = self._relied_on(epsilon)
        return self.overflow.to_json(people, self._released, self._q, epsilon)

    def _relied_on(self, epsilon: float) -> int:
        """Return how many people the proven delta relies on."""
        if not isinstance(self.bound, CountsBound):
            return self.crowd_size
        part = part_of(epsilon, self.reports_per_person)
        return self.bound.hiding(self.crowd_size, self._q, part)

    def _whole_reports(self, epsilon: float) -> dict[str, Any]:
        """Return SDP's numbers, which are about whole reports; None in the counts view."""
        if self.view == "counts":
            return {"homogeneous": None, "ratio": None}
        worst = self.worst_homogeneous(epsilon)
        differ = self.survey.differing_bits
        mean, variance = homogeneous.ratio_moments(differ, self.crowd_size, self._q)
        at = (self.crowd_size, self._q, epsilon)

        def both(crowd: tuple[int, int, int]) -> dict[str, Any]:
            return {
                "delta": list(homogeneous.delta(crowd, *at)),
                "eta": list(homogeneous.eta(crowd, *at)),
            }

        return {
            "homogeneous": {
                "forward": both((differ, 0, 0)),
                "reverse": both((0, differ, 0)),
                "worst": {
                    **worst.crowd._asdict(),
                    "delta": list(homogeneous.delta(worst.crowd, *at)),
                    "eta": list(worst.eta),
                    "kinds": worst.kinds,
                    "exhaustive": worst.exhaustive,
                },
            },
            "ratio": {"mean": _finite(mean), "sigma": _finite(math.sqrt(variance))},
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _checked_epsilon(epsilon: float) -> float:
    if check_number("epsilon", epsilon) < 0:
        raise InputError(f"epsilon must not be negative, got epsilon={epsilon}.")
    return float(epsilon)


def check_promise(plan: Plan) -> ComputedPromise:
    """Return the plan's computed promise, or refuse a plan that does not keep it.

    >>> from dataclasses import replace
    >>> from shoal import Flags, Survey, plan
    >>> from shoal.protocol.flip_probability import FlipProbability
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> agreed = plan(survey, crowd_size=1000, epsilon=1, delta="1e-6")
    >>> check_promise(agreed).in_words
    'proven: epsilon 1, delta 1e-6, for the reports of every crowd'
    >>> check_promise(replace(agreed, q=FlipProbability(1, 6)))
    Traceback (most recent call last):
    ...
    shoal.errors.PrivacyRefusal: the plan promises a proven delta of 1e-6 at epsilon 1, but a...
    """
    computed = compute_promise(plan)
    if computed.refusal is not None:
        raise PrivacyRefusal(computed.refusal)
    return computed


@lru_cache(maxsize=256)
def compute_promise(plan: Plan) -> ComputedPromise:
    """Compute the promise at the plan's exact q, crowd and number of reports per person.

    A local promise is about one report, and `Plan` itself checks it exactly.
    """
    promise, eta = plan.promise, None
    if promise.kind == "local":
        return ComputedPromise.of(plan)
    try:
        delta = _delta(plan)
    except PrivacyRefusal as refusal:  # no bound is known
        return ComputedPromise.of(plan, refusal=str(refusal))
    wanted = float(promise.delta or 0)
    if wanted < delta <= _NEAR_MISS * wanted:
        delta = min(delta, _delta(plan, rtol=1e-6))
    if promise.eta is not None:
        eta = _eta(plan)
    return ComputedPromise.of(plan, delta, _refusal(plan, delta, eta))


def shortfall(plan: Plan) -> float:
    """Return by how much the certified delta or eta exceeds the promised one."""
    if plan.promise.delta is not None:
        return _delta(plan) - float(plan.promise.delta)
    assert plan.promise.eta is not None
    return _eta(plan) - float(plan.promise.eta)


@lru_cache(maxsize=256)
def _delta(plan: Plan, rtol: float = 1e-4) -> float:
    return certify(plan).delta(epsilon=float(plan.promise.epsilon), rtol=rtol).high


def _eta(plan: Plan) -> float:
    return certify(plan).eta(epsilon=float(plan.promise.epsilon)).high


def _refusal(plan: Plan, delta: float, eta: float | None) -> str | None:
    """Return why a plan with this proven delta and eta breaks its promise, or None."""
    refusal = refusal_of(plan, delta, eta)
    if refusal is None and plan.promise.kind == "three-sigma" and not _within_three_sigma(plan):
        return (
            f"the plan promises the three-sigma rule at epsilon {plan.promise.epsilon}, and a"
            f" computation does not confirm it with q = {float(plan.q):.6g} in a crowd of"
            f" {plan.crowd_size:,}; make the plan anew with shoal plan."
        )
    return refusal


def _within_three_sigma(plan: Plan) -> bool:
    assert plan.crowd_size is not None
    ratio = math.exp(min(float(plan.promise.epsilon), 700.0))
    try:
        gap = gap_312(float(plan.q), plan.survey.differing_bits, plan.crowd_size, ratio)
    except (OverflowError, ZeroDivisionError):
        return False
    return gap <= 1e-12 * ratio
