"""From a survey and a wish to a Plan: how often each device must flip a bit.

Any one of q, crowd size, epsilon and delta may be the unknown. The result is rounded in the safe
direction and certified at the rounded value: no plan relies on a search alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any, Literal, get_args

from shoal.errors import InputError, PrivacyRefusal, WeakPromiseWarning
from shoal.planning.bounds import PART_OF_DELTA, Bound, Overflow, bound_of, domain_of
from shoal.planning.certificate import shortfall
from shoal.planning.share_noise import NO_FLIPS, choose_noise
from shoal.protocol.flip_probability import EXACT, MAX_DIGITS, FlipProbability, local_epsilon
from shoal.protocol.plan import (
    MAX_CROWD,
    MIN_WINDOW,
    PROMISES,
    RELAY_SHOWS_REPORTS,
    VIEWS,
    Aggregators,
    Parties,
    Plan,
    Promise,
    PromiseKind,
    View,
)
from shoal.protocol.promise import exposed_people
from shoal.protocol.survey import Survey
from shoal.support.checks import check_decimal, check_integer, check_one_of, seconds, takes
from shoal.support.rounding import text_up
from shoal.theory import sufficient

__all__ = ["plan"]

NoiseBy = Literal["flips", "aggregators", "laplace", "gaussian"]
"""Where the noise comes from: flips of devices, or draws of both aggregators, of either kind."""


@takes(survey=Survey)
def plan(
    survey: Survey,
    *,
    q: object = None,
    crowd_size: int | None = None,
    epsilon: object = None,
    delta: object = None,
    eta: object = None,
    promise: PromiseKind | None = None,
    window: int | str | None = None,
    honest_fraction: object = None,
    view: View = "reports",
    local_epsilon: object = None,
    relay: str | None = None,
    analyzer: str | None = None,
    leader: str | None = None,
    helper: str | None = None,
    max_weight: int | None = None,
    noise: NoiseBy = "flips",
    accept_weak_promise: bool = False,
) -> Plan:
    """Make a plan that keeps a promise; of q, crowd_size, epsilon and delta one may be left out.

    Parameters
    ----------
    survey
        The questions.
    q
        The flip probability; rounded up to the digits that the sampler draws.
    crowd_size
        How many reports are released together.
    epsilon, delta, eta
        The privacy wanted: decimals, each kept in its one spelling.
    promise
        ``"proven"`` (the default): (epsilon, delta)-differential privacy of the released tally.
        ``"sufficient"``: SDP's (epsilon, eta) on homogeneous crowds, no guarantee.
        ``"three-sigma"``: SDP's rule of thumb for it, epsilon only.
        ``"local"``: holds for each report by itself, with no crowd; the default if only q is given.
    window
        The length in seconds, or as "1d", of the windows in which a person is asked once; an hour
        or more. A crowd never mixes windows. By default a person is asked only once.
    honest_fraction
        The part of every release that is assumed honest, in (0, 1]: a release then holds
        crowd_size / honest_fraction reports, so that crowd_size of them are honest.
    view
        Against whom a proven promise holds. ``"reports"``: an observer of all reports of a crowd
        without their senders. ``"counts"``: an observer who sees only how many reports set each
        bit. That needs far less noise, and a trusted party that keeps single reports hidden.
    local_epsilon
        The largest local epsilon of a single report, which sets a least q. By default no limit.
    relay, analyzer
        The origins of two parties that share the work: the relay sees the senders, the analyzer
        whole reports, so that the view is ``"reports"``. By default one collector does everything.
    leader, helper
        The origins of the two aggregators of DAP, with view ``"counts"``: each receives a secret
        share of every report (Prio3MultihotCountVec). Experimental.
    max_weight
        With a leader and a helper: how many bits of a report may be set. By default the fewest
        for which dropped bits cost at most 1 % of delta.
    noise
        With a leader and a helper: where the noise comes from. ``"flips"`` of devices, or each of
        the ``"aggregators"``, who add discrete ``"laplace"`` or ``"gaussian"`` noise to their share
        of a crowd, by default the one with the smaller sigma. Then devices flip next to nothing,
        unless q or local_epsilon asks for more.
    accept_weak_promise
        Make a plan without a warning or refusal of a weak promise. Otherwise an epsilon above 10,
        or a delta that allows 0.01 people of the crowd to be exposed, is a `WeakPromiseWarning`,
        and a delta that allows a whole person is refused. `Plan.warnings` has the sentences.

    >>> from shoal import Flags
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> round(float(plan(survey, crowd_size=10_000, epsilon=1, delta="1e-6").q), 3)
    0.203
    >>> plan(survey, q="0.25", crowd_size=10_000, delta="1e-6").promise
    Promise(kind='proven', epsilon='0.521', delta='1e-6', eta=None)
    >>> plan(survey, epsilon=1, promise="local").q
    FlipProbability(numerator=29503, digits=16)
    >>> wish = {"crowd_size": 10_000, "epsilon": 1, "delta": "1e-6", "view": "counts"}
    >>> [round(float(plan(survey, local_epsilon=e, **wish).q), 4) for e in (None, 10)]
    [0.01, 0.1192]
    >>> dap = {"leader": "https://leader.example", "helper": "https://helper.example"}
    >>> plan(survey, **wish, **dap, window="1w").parties.max_weight
    5
    >>> plan(survey, **wish, **dap, window="1w", noise="aggregators").noise
    ShareNoise(kind='laplace', scale='5')
    """
    flip = None if q is None else FlipProbability.at_least(q)
    if flip is not None and flip.is_blind:
        raise InputError("with q = 1/2 reports carry no information: every bit is a coin toss.")
    if crowd_size is not None:
        check_integer("crowd_size", crowd_size, lowest=1, highest=MAX_CROWD)
    if isinstance(window, str):
        window = seconds(window)
    if window is not None and check_integer("window", window, lowest=1) < MIN_WINDOW:
        raise InputError(
            f"window must be at least {MIN_WINDOW} seconds, got window={window}: a report"
            " carries the number of its window, and a short window shows when it was sent."
        )
    texts = {
        "epsilon": _decimal("epsilon", epsilon, None),
        "delta": _decimal("delta", delta, 1),
        "eta": _decimal("eta", eta, 1),
    }
    if promise is None:
        only_q = flip is not None and not any(texts.values())
        promise = "local" if only_q else "sufficient" if texts["eta"] else "proven"
    for name, kind in (("delta", "proven"), ("eta", "sufficient")):
        if texts[name] is not None and promise != kind:
            raise InputError(f"{name} is part of a {kind} promise, not of a {promise} one.")
    check_one_of("promise", promise, PROMISES)
    origins = {"relay": relay, "analyzer": analyzer, "leader": leader, "helper": helper}
    deployed = Deployment.of(survey, view, origins, max_weight, window)
    check_one_of("noise", noise, get_args(NoiseBy))
    if noise != "flips":
        if promise != "proven" or not isinstance(deployed.parties, Aggregators):
            raise InputError(f"noise={noise!r} needs leader=, helper= and a proven promise.")
        least = _floor(survey, flip, local_epsilon)
        draft = _noised(deployed, flip or least or NO_FLIPS, crowd_size, texts, noise)
    elif promise == "proven":
        draft = _proven(deployed, flip, crowd_size, texts, _floor(survey, flip, local_epsilon))
    elif view != "reports" or local_epsilon is not None:
        option = "view" if local_epsilon is None else "local_epsilon"
        raise InputError(f"{option} is part of a proven promise, not of a {promise} one.")
    else:
        makers = {"local": _local, "sufficient": _sufficient, "three-sigma": _three_sigma}
        draft = replace(makers[promise](survey, flip, crowd_size, texts), parties=deployed.parties)
    if draft.q.is_blind:
        raise PrivacyRefusal(
            f"epsilon={draft.promise.epsilon} is so small that reports would carry no information:"
            " every bit would be a coin toss; choose a larger epsilon or a larger crowd."
        )
    honest = _honest(honest_fraction)
    if honest is not None and draft.crowd_size is None:
        raise InputError("honest_fraction= needs crowd_size=.")
    made = replace(draft, window=window, honest_fraction=honest)
    check_strength(made, accept_weak_promise)
    return made


def check_strength(made: Plan, accept_weak_promise: bool) -> None:
    """Warn of a weak promise, and refuse one that allows a person to be exposed."""
    if accept_weak_promise:
        return
    delta, crowd = made.promise.delta, made.crowd_size
    if delta is not None and crowd is not None and exposed_people(delta, crowd) >= 1:
        raise PrivacyRefusal(
            f"{made.weak_numbers[0].removesuffix('.')}, or accept the promise with"
            " accept_weak_promise=True."
        )
    for sentence in made.weak_numbers:
        warnings.warn(sentence, WeakPromiseWarning, stacklevel=4)  # the caller of plan


def _honest(part: object) -> str | None:
    """Return the honest part as the plan keeps it: a decimal below 1, or None for all."""
    if part is None or part in (1, "1"):
        return None
    return check_decimal("honest_fraction", part, above=0, below=1)


def replanning(old: Plan, reports: int) -> str:
    """End a sentence with how to plan for fewer reports with the same honest part."""
    if 10 * reports < old.reports_needed:
        return "."
    crowd = honest_crowd(reports, old.honest_fraction)
    promise, command = old.promise, "shoal plan" if old.memory is None else "shoal plan over-time"
    options = {
        "crowd": crowd,
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "eta": promise.eta,
        "promise": None if promise.kind in ("proven", "sufficient") else promise.kind,
        "view": None if old.view == "reports" else old.view,
        "honest": old.honest_fraction,
    }
    given = [f"--{name} {value}" for name, value in options.items() if value is not None]
    return (
        f", or plan for {reports:,} reports and, if none has left, randomize the answers again:"
        f" {command} SURVEY.toml {' '.join(given)}"
    )


def honest_crowd(reports: int, honest_fraction: object) -> int:
    """Return how many of some reports are honest if a part of them is; at least 1."""
    return max(int(reports * Fraction(_honest(honest_fraction) or "1")), 1)


Texts = dict[str, str | None]


_PAIRS = (("relay", "analyzer"), ("leader", "helper"))


@dataclass(frozen=True)
class Deployment:
    """A survey, its view, and the parties asked for; `max_weight` is None if the planner chooses.

    `max_weight` is how many bits of a report may be set, where there is a leader and a helper.
    """

    survey: Survey
    view: View
    parties: Parties | Aggregators | None
    max_weight: int | None
    window: int | None = None

    @classmethod
    def of(
        cls,
        survey: Survey,
        view: View,
        origins: Mapping[str, str | None],
        max_weight: int | None,
        window: int | None,
    ) -> Deployment:
        """Check what was asked for; `origins` are those of all parties, None if not given."""
        check_one_of("view", view, VIEWS)
        given = {role: origin for role, origin in origins.items() if origin is not None}
        pairs = [pair for pair in _PAIRS if given.keys() & {*pair}]
        if len(pairs) > 1:
            raise InputError("give a relay and an analyzer, or a leader and a helper, not both.")
        first, second = pairs[0] if pairs else ("", "")
        if max_weight is not None and first != "leader":
            raise InputError("max_weight= needs leader= and helper=.")
        if not pairs:
            return cls(survey, view, None, None, window)
        if len(given) == 1:
            missing = second if first in given else first
            raise InputError(f"{first} and {second} go together; {missing}= is missing.")
        if first == "relay":
            if view == "counts":
                raise InputError(RELAY_SHOWS_REPORTS)
            return cls(survey, view, Parties(given[first], given[second]), None, window)
        if view == "reports":
            raise InputError("a leader and a helper see no reports; plan with view='counts'.")
        if window is None and not survey.retention:
            raise InputError("a leader and a helper need window=, such as '1w'.")
        if max_weight is not None:
            check_integer("max_weight", max_weight, lowest=1, highest=survey.bits)
        return cls(survey, view, Aggregators(given[first], given[second]), max_weight, window)

    @property
    def _chooses_weight(self) -> bool:
        return isinstance(self.parties, Aggregators) and self.max_weight is None

    @property
    def bound(self) -> Bound:
        """The bound of its view, with the price of dropped bits if the weight is given."""
        weight = self.max_weight
        given = None if weight is None else Overflow.of(self.survey, weight)
        return bound_of(self.survey, self.view, overflow=given)

    def left(self, delta: float) -> float:
        """Return the delta that is left after setting aside the price of dropped bits."""
        return delta * (1.0 - PART_OF_DELTA) if self._chooses_weight else delta

    def with_weight(self, crowd: int, q: FlipProbability, epsilon: str, delta: float) -> Deployment:
        """Return the deployment with the smallest weight that costs at most 1 % of delta."""
        if not self._chooses_weight:
            return self
        every = Overflow.of(self.survey, self.survey.bits)
        return replace(
            self, max_weight=every.smallest_weight(crowd, float(q), float(epsilon), delta)
        )

    def draft(self, q: FlipProbability, crowd: int, epsilon: str, delta: str, **more: Any) -> Plan:
        weight = self.with_weight(crowd, q, epsilon, float(delta)).max_weight
        parties = self.parties
        if isinstance(parties, Aggregators) and weight is not None:
            parties = replace(parties, max_weight=weight)
        return Plan(
            self.survey,
            q,
            Promise("proven", epsilon, delta),
            crowd,
            window=self.window,
            view=self.view,
            parties=parties,
            **more,
        )


def _local(survey: Survey, q: FlipProbability | None, crowd: int | None, wish: Texts) -> Plan:
    epsilon = wish["epsilon"]
    if q is None:
        if epsilon is None:
            raise InputError("a local promise needs epsilon or q.")
        q = _local_q(survey, Decimal(epsilon))
    if epsilon is None:
        epsilon = _shown(survey, q)
    elif local_epsilon(survey.differing_bits, q, places=EXACT) > Decimal(epsilon):
        raise _too_few_flips(survey, q, epsilon, _local_q(survey, Decimal(epsilon)))
    return Plan(survey, q, Promise("local", epsilon), crowd)


def _shown(survey: Survey, q: FlipProbability) -> str:
    return f"{local_epsilon(survey.differing_bits, q, places=4):f}"


def _too_few_flips(
    survey: Survey, q: FlipProbability, limit: str, least: FlipProbability
) -> PrivacyRefusal:
    return PrivacyRefusal(
        f"q = {q} gives a local epsilon of {_shown(survey, q)}, more than {limit}; q must be at"
        f" least {float(least):.6g}."
    )


def _floor(survey: Survey, q: FlipProbability | None, wanted: object) -> FlipProbability | None:
    limit = _decimal("local_epsilon", wanted, None)
    if limit is None:
        return None
    floor = _local_q(survey, Decimal(limit), "local_epsilon")
    if q is not None and q.fraction < floor.fraction:
        raise _too_few_flips(survey, q, limit, floor)
    return floor


def _proven(
    deployed: Deployment,
    q: FlipProbability | None,
    crowd: int | None,
    wish: Texts,
    floor: FlipProbability | None,
) -> Plan:
    epsilon, delta = wish["epsilon"], wish["delta"]
    _check_one_unknown(q=q, crowd_size=crowd, epsilon=epsilon, delta=delta)
    bound, wanted = deployed.bound, deployed.left(float(delta or 0))
    if q is None:
        assert crowd is not None
        assert epsilon is not None
        assert delta is not None
        least = FlipProbability.at_least(bound.q(crowd, float(epsilon), wanted))
        if floor is not None and floor.fraction > least.fraction:
            least = floor
        return _raised(deployed.draft(least, crowd, epsilon, delta))
    if crowd is None:
        assert epsilon is not None
        crowd = _finite_crowd(bound.crowd_size(float(q), float(epsilon), wanted), q, epsilon)
    elif epsilon is None:
        # An epsilon of 0 would be perfect privacy; the smallest decimal that is kept is used.
        epsilon = text_up(max(bound.epsilon(crowd, float(q), wanted), 1e-6), 4)
    elif delta is None:
        reached = bound.proven(crowd, float(q), float(epsilon)).delta.high
        # deltas are in proportion, up to the part that dropped bits will cost
        chosen = deployed.with_weight(crowd, q, epsilon, reached / deployed.left(1.0))
        if chosen != deployed:
            reached = chosen.bound.proven(crowd, float(q), float(epsilon)).delta.high
        delta = _text_probability(reached, "delta", epsilon)
    assert delta is not None
    return _checked(deployed.draft(q, crowd, epsilon, delta))


def _noised(
    deployed: Deployment, q: FlipProbability, crowd: int | None, wish: Texts, by: NoiseBy
) -> Plan:
    """Plan for noise of aggregators; one that is honest must do, whatever the crowd."""
    epsilon, delta = wish["epsilon"], wish["delta"]
    if crowd is None or epsilon is None or delta is None:
        raise InputError(f"noise={by!r} needs crowd_size=, epsilon= and delta=.")
    survey, numbers = deployed.survey, (float(epsilon), float(delta))
    if deployed.max_weight is None:
        every = Overflow.of(survey, survey.bits)
        deployed = replace(deployed, max_weight=every.smallest_weight(1, float(q), 0.0, numbers[1]))
    assert deployed.max_weight is not None
    overflow = Overflow.of(survey, deployed.max_weight)
    if overflow.price(1, float(q), 0.0) >= numbers[1]:
        raise PrivacyRefusal(
            f"with max_weight {deployed.max_weight} and q = {float(q):.3g} dropped bits cost all of"
            f" delta {delta}; leave max_weight to the planner."
        )
    kind = None if by == "aggregators" else by
    assert kind != "flips"
    noise = choose_noise(survey.differing_bits, overflow, float(q), *numbers, kind)
    draft = deployed.draft(q, crowd, epsilon, delta)
    assert isinstance(draft.parties, Aggregators)
    return _checked(replace(draft, parties=replace(draft.parties, noise=noise)))


def _sufficient(survey: Survey, q: FlipProbability | None, crowd: int | None, wish: Texts) -> Plan:
    epsilon, eta = wish["epsilon"], wish["eta"]
    if crowd is None or epsilon is None:
        raise InputError("a sufficient promise needs crowd_size and epsilon, and q or eta.")
    _check_one_unknown(q=q, eta=eta)
    domain = domain_of(survey)
    if q is None:
        assert eta is not None
        wanted = sufficient.sufficient_q(domain, crowd, float(epsilon), float(eta)).value
        promise = Promise("sufficient", epsilon, eta=eta)
        return _raised(Plan(survey, FlipProbability.at_least(wanted), promise, crowd))
    if eta is None:
        reached = sufficient.sufficient_eta(domain, crowd, float(q), float(epsilon)).eta.high
        eta = _text_probability(reached, "eta", epsilon)
    return _checked(Plan(survey, q, Promise("sufficient", epsilon, eta=eta), crowd))


def _three_sigma(survey: Survey, q: FlipProbability | None, crowd: int | None, wish: Texts) -> Plan:
    epsilon = wish["epsilon"]
    if crowd is None or epsilon is None or q is not None:
        raise InputError("a three-sigma promise needs crowd_size and epsilon; q follows from them.")
    try:
        wanted = sufficient.three_sigma_q(survey.differing_bits, crowd, float(epsilon))
    except OverflowError as error:
        raise InputError(
            f"epsilon={epsilon} gives no privacy at all; choose a smaller one."
        ) from error
    except ValueError as error:
        raise PrivacyRefusal(
            f"no flip probability keeps the three-sigma rule at epsilon={epsilon} in a crowd of"
            f" {crowd}; choose a larger epsilon or a larger crowd."
        ) from error
    return Plan(survey, FlipProbability.at_least(wanted), Promise("three-sigma", epsilon), crowd)


def raising(q: FlipProbability, attempts: int = 64) -> Iterator[FlipProbability]:
    """Yield q and larger values: a search only comes close, and bounds need not be monotone."""
    yield q
    for attempt in range(attempts):
        step = Fraction(2**attempt, 2 ** max(q.digits, 16))
        yield FlipProbability.of_fraction(min(q.fraction + step, Fraction(1, 2)))


def _raised(draft: Plan) -> Plan:
    """Raise q, digit by digit, until the promise is certified at the q that will be drawn."""
    for q in raising(draft.q):
        raised = replace(draft, q=q)
        if q.is_blind or shortfall(raised) <= 0:
            return raised
    raise PrivacyRefusal("no flip probability below 1/2 could be certified for this promise.")


def _checked(draft: Plan) -> Plan:
    """Refuse a plan that does not keep its promise, and name a q that would."""
    missing = shortfall(draft)
    if missing <= 0:
        return draft
    kind, epsilon = draft.promise.kind, draft.promise.epsilon
    name = "delta" if kind == "proven" else "eta"
    wanted = draft.promise.delta or draft.promise.eta
    reached = float(wanted or 0) + missing
    origins: dict[str, Any] = {} if draft.parties is None else draft.parties.origins
    possible = plan(
        draft.survey,
        crowd_size=draft.crowd_size,
        epsilon=epsilon,
        delta=draft.promise.delta,
        eta=draft.promise.eta,
        promise=kind,
        window=draft.window,
        view=draft.view,
        accept_weak_promise=True,
        **origins,
    )
    seen = " of counts" if draft.view == "counts" else ""
    sent = enough = ""
    if draft.max_weight is not None:
        sent = f", with max_weight {draft.max_weight},"
        enough = f" with max_weight {possible.max_weight}"
    raise PrivacyRefusal(
        f"with q = {float(draft.q):.6g} and a crowd of {draft.crowd_size:,}{sent} the {kind}"
        f" {name}{seen} at epsilon {epsilon} is {text_up(reached, 3)}, not {wanted};"
        f" q = {float(possible.q):.6g}{enough} would be enough."
    )


def _check_one_unknown(**given: object) -> None:
    unknown = [f"{name}=" for name, value in given.items() if value is None]
    if len(unknown) > 1:
        known = ", ".join(f"{name}=" for name in given)
        raise InputError(
            f"give all but one of {known}, and that one is computed; missing: {', '.join(unknown)}."
        )


def _finite_crowd(crowd_size: float, q: FlipProbability, epsilon: str) -> int:
    if not math.isfinite(crowd_size):
        raise PrivacyRefusal(
            f"no crowd of up to {MAX_CROWD:.0e} hides a report at q = {float(q):.6g} and"
            f" epsilon {epsilon}; raise q, epsilon or delta."
        )
    return int(crowd_size)


def _text_probability(bound: float, name: str, epsilon: str) -> str:
    text = text_up(bound, 4)
    if float(text) >= 1:
        raise PrivacyRefusal(
            f"at epsilon {epsilon} the {name} would be 1, which promises nothing; raise epsilon."
        )
    return text


def _decimal(name: str, value: object, below: int | None) -> str | None:
    if value is None:
        return None
    if name == "delta" and value in (0, "0"):
        raise InputError(
            "delta must be above 0, got delta=0; a promise without delta is a local one."
        )
    text = check_decimal(name, value, above=0, below=below)
    if not 0 < float(text) < (below or math.inf):
        raise InputError(f"{name}={text} is too small or too large to compute with.")
    return text


def _local_q(survey: Survey, epsilon: Decimal, name: str = "epsilon") -> FlipProbability:
    """Return the smallest flip probability whose local epsilon is at most `epsilon` (SDP 4.2)."""
    with localcontext(Context(prec=60)):
        if epsilon / survey.differing_bits > 34:
            raise InputError(f"{name}={epsilon} gives no privacy at all; choose a smaller one.")
        wanted = 1 / (1 + (epsilon / survey.differing_bits).exp())
    q = FlipProbability.at_least(Fraction(wanted))
    # The wanted q is itself rounded, in the 60th digit; the check decides.
    while local_epsilon(survey.differing_bits, q, places=EXACT) > epsilon:
        q = FlipProbability.of_fraction(q.fraction + Fraction(1, 2**MAX_DIGITS))
    return q
