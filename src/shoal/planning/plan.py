"""A survey and a wish to a Plan: how often each device must flip a bit.

Any one of q, crowd size, epsilon and delta may be the unknown. The answer is rounded the safe way
and certified at the rounded value: a plan is never made on the word of a search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.certificate import shortfall
from shoal.planning.fragments import Pieces
from shoal.protocol.flip_probability import EXACT, MAX_DIGITS, FlipProbability, local_epsilon
from shoal.protocol.plan import (
    MAX_CROWD,
    MIN_WINDOW,
    PROMISES,
    VIEWS,
    Parties,
    Plan,
    Promise,
    PromiseKind,
    View,
)
from shoal.protocol.survey import Survey
from shoal.support.checks import check_decimal, check_integer, seconds
from shoal.support.rounding import text_up

__all__ = ["plan", "raising"]


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
    messages: int | None = None,
) -> Plan:
    """Make a plan that keeps a promise; of q, crowd_size, epsilon and delta one may be left out.

    Parameters
    ----------
    survey
        What is asked.
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
        ``"local"``: holds for each report by itself, with no crowd. It is also what a plan says
        whose q is given and nothing else.
    window
        The length in seconds, or as "1d", of the windows in which a person is asked once; an hour
        or more. A crowd never mixes windows. By default a person is asked once for all.
    honest_fraction
        The part of every release that is taken to be honest, in (0, 1]: a release then holds
        crowd_size / honest_fraction reports, so that crowd_size of them are.
    view
        Against whom a proven promise holds. ``"reports"``: an observer of all reports of a crowd
        without their senders. ``"counts"``: an observer who sees only how many reports set each
        bit. That needs far less noise, and a trusted party that keeps single reports hidden.
    local_epsilon
        The most that a single report may reveal to an observer: q is at least
        as large as that needs. By default there is no limit.
    relay, analyzer
        The origins of two parties that share the work: the relay sees the senders, the analyzer
        the reports. By default one collector does everything.
    messages
        With a relay, an analyzer and view ``"counts"``: as how many messages a report is sent. By
        default the fewest for which the reports that do not fit cost at most 1 % of delta.

    >>> from shoal import Flags
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> round(float(plan(survey, crowd_size=10_000, epsilon=1, delta="1e-6").q), 4)
    0.2146
    >>> plan(survey, q="0.25", crowd_size=10_000, delta="1e-6").promise
    Promise(kind='proven', epsilon='0.5476', delta='1e-6', eta=None)
    >>> plan(survey, epsilon=1, promise="local").q
    FlipProbability(numerator=29503, digits=16)
    >>> wish = {"crowd_size": 10_000, "epsilon": 1, "delta": "1e-6", "view": "counts"}
    >>> [round(float(plan(survey, local_epsilon=e, **wish).q), 4) for e in (None, 10)]
    [0.01, 0.1192]
    >>> two = {"relay": "https://relay.example", "analyzer": "https://analyzer.example"}
    >>> plan(survey, **wish, **two).parties.messages
    5
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
    makers = {"local": _local, "sufficient": _sufficient, "three-sigma": _three_sigma}
    if promise not in PROMISES:
        kinds = ", ".join(PROMISES)
        raise InputError(f"promise must be one of {kinds}, got {promise!r}.")
    if view not in VIEWS:
        raise InputError(f"view must be one of {', '.join(VIEWS)}, got {view!r}.")
    parties = None
    if (relay, analyzer, messages) != (None, None, None):
        parties = Pieces.of(survey, view, relay, analyzer, messages)
    if promise == "proven":
        floor = _floor(survey, flip, local_epsilon)
        draft = _proven(survey, flip, crowd_size, texts, view, floor, parties)
    elif view != "reports" or local_epsilon is not None:
        option = "view" if local_epsilon is None else "local_epsilon"
        raise InputError(f"{option} is part of a proven promise, not of a {promise} one.")
    else:
        draft = makers[promise](survey, flip, crowd_size, texts)
        draft = replace(draft, parties=None if parties is None else parties.whole)
    if draft.q.is_blind:
        raise PrivacyRefusal(
            f"epsilon={draft.promise.epsilon} is so small that reports would carry no information:"
            " every bit would be a coin toss; choose a larger epsilon or a larger crowd."
        )
    return replace(draft, window=window, honest_fraction=_honest(draft, honest_fraction))


def _honest(draft: Plan, part: object) -> str | None:
    """Return the honest part as the plan keeps it: a decimal below 1, or None for all."""
    if part is None or part in (1, "1"):
        return None
    if draft.crowd_size is None:
        raise InputError("honest_fraction needs a crowd_size.")
    return check_decimal("honest_fraction", part, above=0, below=1)


Texts = dict[str, str | None]


def _local(survey: Survey, q: FlipProbability | None, crowd: int | None, wish: Texts) -> Plan:
    epsilon, differ = wish["epsilon"], survey.differing_bits
    if q is None and epsilon is None:
        raise InputError("a local promise needs epsilon or q.")
    if q is None:
        assert epsilon is not None
        q = _local_q(survey, Decimal(epsilon))
    if epsilon is None:
        epsilon = _shown(survey, q)
    elif local_epsilon(differ, q, places=EXACT) > Decimal(epsilon):
        raise PrivacyRefusal(
            f"q = {q} gives a local epsilon of {_shown(survey, q)}, more than"
            f" {epsilon}; q must be at least {float(_local_q(survey, Decimal(epsilon))):.6g}."
        )
    return Plan(survey, q, Promise("local", epsilon), crowd)


def _shown(survey: Survey, q: FlipProbability) -> str:
    return f"{local_epsilon(survey.differing_bits, q, places=4):f}"


def _floor(survey: Survey, q: FlipProbability | None, wanted: object) -> FlipProbability | None:
    """Return the smallest q that a limit on a single report allows, or None without a limit."""
    limit = _decimal("local_epsilon", wanted, None)
    if limit is None:
        return None
    floor = _local_q(survey, Decimal(limit), "local_epsilon")
    if q is not None and q.fraction < floor.fraction:
        raise PrivacyRefusal(
            f"q = {q} gives a local epsilon of {_shown(survey, q)}, more than {limit}; q must be at"
            f" least {float(floor):.6g}."
        )
    return floor


def _proven(
    survey: Survey,
    q: FlipProbability | None,
    crowd: int | None,
    wish: Texts,
    view: View,
    floor: FlipProbability | None,
    pieces: Pieces | None,
) -> Plan:
    from shoal.planning.bounds import bound_of

    epsilon, delta = wish["epsilon"], wish["delta"]
    _check_one_unknown(q=q, crowd=crowd, epsilon=epsilon, delta=delta)
    bound = bound_of(survey, view, overflow=None if pieces is None else pieces.overflow)
    # what reports that do not fit will cost is set aside, where their messages are not chosen yet
    wanted = None if delta is None else float(delta) * (1.0 if pieces is None else pieces.left)

    def drafted(q: FlipProbability, crowd: int, epsilon: str, delta: str) -> Plan:
        parties = None if pieces is None else pieces.parties(crowd, q, epsilon, float(delta))
        promise = Promise("proven", epsilon, delta)
        return Plan(survey, q, promise, crowd, view=view, parties=parties)

    if q is None:
        assert crowd is not None
        assert epsilon is not None
        assert delta is not None
        assert wanted is not None
        least = FlipProbability.at_least(bound.q(crowd, float(epsilon), wanted))
        if floor is not None and floor.fraction > least.fraction:
            least = floor
        return _raised(drafted(least, crowd, epsilon, delta))
    if crowd is None:
        assert epsilon is not None
        assert wanted is not None
        crowd = _finite_crowd(bound.crowd_size(float(q), float(epsilon), wanted), q, epsilon)
    elif epsilon is None:
        assert wanted is not None
        epsilon = _text_epsilon(bound.epsilon(crowd, float(q), wanted))
    elif delta is None:
        reached = bound.delta(crowd, float(q), float(epsilon)).high
        if pieces is not None and pieces.messages is None:
            chosen = pieces.chosen(crowd, q, epsilon, reached / pieces.left)
            bound = bound_of(survey, view, overflow=chosen)
            reached = bound.delta(crowd, float(q), float(epsilon)).high
        delta = _text_probability(reached, "delta", epsilon)
    assert delta is not None
    return _checked(drafted(q, crowd, epsilon, delta))


def _sufficient(survey: Survey, q: FlipProbability | None, crowd: int | None, wish: Texts) -> Plan:
    from shoal.planning.bounds import domain_of
    from shoal.theory.sufficient import sufficient_eta, sufficient_q

    epsilon, eta = wish["epsilon"], wish["eta"]
    if crowd is None or epsilon is None:
        raise InputError("a sufficient promise needs crowd_size and epsilon, and q or eta.")
    _check_one_unknown(q=q, eta=eta)
    domain = domain_of(survey)
    if q is None:
        assert eta is not None
        wanted = sufficient_q(domain, crowd, float(epsilon), float(eta)).value
        return _raised(
            Plan(
                survey,
                FlipProbability.at_least(wanted),
                Promise("sufficient", epsilon, eta=eta),
                crowd,
            )
        )
    if eta is None:
        reached = sufficient_eta(domain, crowd, float(q), float(epsilon)).eta.high
        eta = _text_probability(reached, "eta", epsilon)
    return _checked(Plan(survey, q, Promise("sufficient", epsilon, eta=eta), crowd))


def _three_sigma(survey: Survey, q: FlipProbability | None, crowd: int | None, wish: Texts) -> Plan:
    from shoal.theory.sufficient import three_sigma_q

    epsilon = wish["epsilon"]
    if crowd is None or epsilon is None or q is not None:
        raise InputError("a three-sigma promise needs crowd_size and epsilon; q follows from them.")
    try:
        wanted = three_sigma_q(survey.differing_bits, crowd, float(epsilon))
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
    """Yield q and larger ones: a search comes close, and a bound need not fall with every step."""
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
    """Refuse a plan that does not keep its promise, and say what would be possible."""
    missing = shortfall(draft)
    if missing <= 0:
        return draft
    kind, epsilon = draft.promise.kind, draft.promise.epsilon
    name = "delta" if kind == "proven" else "eta"
    wanted = draft.promise.delta or draft.promise.eta
    reached = float(wanted or 0) + missing
    possible = plan(
        draft.survey,
        crowd_size=draft.crowd_size,
        epsilon=epsilon,
        delta=draft.promise.delta,
        eta=draft.promise.eta,
        promise=kind,
        view=draft.view,
        **_named(draft.parties),
    )
    seen = " of counts" if draft.view == "counts" else ""
    sent = enough = ""
    if draft.view == "counts" and draft.parties is not None and possible.parties is not None:
        sent = f", sent as {draft.parties.messages} messages a report,"
        enough = f" with {possible.parties.messages} messages"
    raise PrivacyRefusal(
        f"with q = {float(draft.q):.6g} and a crowd of {draft.crowd_size:,}{sent} the {kind}"
        f" {name}{seen} at epsilon {epsilon} is {text_up(reached, 3)}, not {wanted};"
        f" q = {float(possible.q):.6g}{enough} would be enough."
    )


def _named(parties: Parties | None) -> dict[str, Any]:
    """Return a plan's parties as they are asked for; the planner chooses the messages."""
    return {} if parties is None else {"relay": parties.relay, "analyzer": parties.analyzer}


def _check_one_unknown(**given: object) -> None:
    unknown = [name for name, value in given.items() if value is None]
    if len(unknown) > 1:
        raise InputError(f"give all but one of {', '.join(given)}; missing: {', '.join(unknown)}.")


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


def _text_epsilon(value: float) -> str:
    # An epsilon of 0 would be perfect privacy; the smallest decimal that is kept is used.
    return text_up(max(value, 1e-6), 4)


def _decimal(name: str, value: object, below: int | None) -> str | None:
    if value is None:
        return None
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
    # The wanted q is itself rounded, in the 60th digit; the check is what counts.
    while local_epsilon(survey.differing_bits, q, places=EXACT) > epsilon:
        q = FlipProbability.of_fraction(q.fraction + Fraction(1, 2**MAX_DIGITS))
    return q
