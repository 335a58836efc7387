"""What protects one person's answer, in sentences and rounded numbers for every output format.

Several crowds can be added. The sum is computed from the crowds' tallies, so what the tallies
guarantee together also holds for it. Each crowd is randomized afresh, so the guarantees compose
(theorem). Permanent flips (memory) are not fresh; sums of such crowds are refused earlier.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.analysis.crowds import in_crowds
from shoal.analysis.tally import Tally
from shoal.errors import PrivacyRefusal
from shoal.planning.composition import composed_delta, composed_epsilon
from shoal.planning.guarantees import GuaranteeOverTime, guarantees_over_time
from shoal.planning.share_noise import sigma_in
from shoal.planning.threats import single_report, what_holds
from shoal.protocol.flip_probability import EXACT, local_epsilon
from shoal.protocol.plan import Plan, View
from shoal.reports.formatting import flip_in_words, grouped
from shoal.support.rounding import float_up, round_up, text_bracket, text_down, text_up
from shoal.theory.randomized_response import shift_of_a_fake

if TYPE_CHECKING:
    from shoal.planning.certificate import Certificate
    from shoal.protocol.promise import ComputedPromise


def plain_promise(computed: ComputedPromise) -> str:
    """Return what a promise that was computed, and holds, means for one person."""
    promise = computed.promise
    ratio = ratio_in_words(float(promise.epsilon))
    if promise.kind == "proven":
        seen = {
            "counts": "the counts of the whole crowd and no single report",
            "reports": "the reports of the whole crowd without their senders",
        }[computed.view]
        return (
            "Suppose one person had given a different answer. Whatever the others answered, and"
            " whatever else an observer knows, any result of these counts would have been at most"
            f" {ratio} times as likely, plus a probability of {promise.delta}. This is a theorem."
            f" It holds against anyone who sees {seen}."
        )
    if promise.kind == "local":
        return (
            "To anyone who sees one person's report, the collector included, it is at most"
            f" {ratio} times as likely under one answer as under another. This holds for each"
            " report by itself. It needs no crowd and no trust in anyone."
        )
    chance = (
        f"with a probability of at most {promise.eta}"
        if promise.eta
        else "rarely, by a rule of thumb"
    )
    proven = (
        ""
        if computed.delta is None
        else f" At epsilon {promise.epsilon} a delta of {text_up(computed.delta, 3)} is proven."
    )
    return (
        "In a crowd where all others gave the same answer, the counts make one answer of a person"
        f" more than {ratio} times as likely as another only {chance}. Other crowds can be worse:"
        f" this is not a guarantee.{proven}"
    )


def ratio_in_words(epsilon: float) -> str:
    """Return the largest likelihood ratio that an epsilon allows."""
    return text_up(math.exp(epsilon), 3) if epsilon < 700 else "very many"


@dataclass(frozen=True)
class PromiseOfSum:
    """What is proven for a person who is in every crowd of a sum; rounded up.

    `epsilon` holds at `delta`, and `delta_at_promised` at the plan's epsilon. A local promise has
    no delta and needs no crowd.
    """

    crowds: int
    epsilon: float
    delta: float
    promised_epsilon: float
    delta_at_promised: float | None
    method: str
    view: View

    @property
    def in_words(self) -> str:
        epsilon = f"epsilon {text_up(self.epsilon, 4)}"
        person = f"for a person who is in all {self.crowds:,} crowds of this sum"
        if self.delta_at_promised is None:
            return f"local: {epsilon}, {person}"
        delta = f"delta {text_up(self.delta, 3)}"
        return f"proven: {epsilon}, {delta}, {person}, in the view of {self.view}"

    @property
    def plain(self) -> str:
        """What the promise means for one person."""
        ratio = ratio_in_words(self.epsilon)
        if self.delta_at_promised is None:
            return (
                f"To anyone who sees all reports of a person who is in all {self.crowds:,} crowds"
                f" of this sum, the collector included, they are at most {ratio} times as likely"
                " under one answer as under another. This needs no crowd and no trust in anyone."
            )
        return (
            "Suppose one person had given different answers in every one of the"
            f" {self.crowds:,} crowds of this sum. Whatever the others answered, and whatever else"
            f" an observer knows, any result of these counts would have been at most {ratio} times"
            f" as likely, plus a probability of {text_up(self.delta, 3)}. This is a theorem: the"
            " promises of the crowds compose."
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def promise_of_sum(
    plan: Plan, tally: Tally, certificate: Certificate | None
) -> PromiseOfSum | None:
    """Return what holds for a sum of crowds; None where the tally is one crowd."""
    if not tally.people_may_repeat:
        return None
    crowds, promised = len(tally.crowds), float(plan.promise.epsilon)
    one = local_epsilon(plan.survey.differing_bits, plan.q, places=EXACT)
    local = float_up(crowds * plan.max_reports_per_person * one)
    if certificate is None:
        return PromiseOfSum(
            crowds, round_up(local), 0.0, promised, None, "epsilons add up", plan.view
        )
    delta = float(plan.promise.delta or "1e-6")
    epsilon = composed_epsilon(certificate, crowds, delta)
    at_promised = composed_delta(certificate, crowds, promised) if promised < local else 0.0
    return PromiseOfSum(
        crowds,
        round_up(min(epsilon, local), 6),
        delta,
        promised,
        at_promised,
        "composition of the crowds" if epsilon < local else "local epsilons add up",
        plan.view,
    )


def promise_of_releases(releases: Mapping[Plan, int]) -> str:
    """Return what holds for a person who is in all releases of plans, of each so many.

    Releases of one plan compose; the bounds of several plans add up (basic composition, theorem).
    """
    try:
        bounds = [_over_all(plan, count) for plan, count in releases.items()]
    except PrivacyRefusal:
        return "Nothing is proven for a person who is in several releases."
    epsilon = text_up(round_up(math.fsum(one.epsilon for one in bounds)), 4)
    delta = math.fsum(one.delta for one in bounds)
    person = f"For a person who is in all {sum(releases.values()):,} releases"
    if not delta:
        return (
            f"{person}, no crowd is relied on: epsilon {epsilon} holds against anyone who sees all"
            " of their reports (local)."
        )
    return (
        f"{person}, the promises compose: epsilon {epsilon}, delta {text_up(delta, 3)}, against"
        " anyone who reads all of them. This is a theorem."
    )


def _over_all(plan: Plan, releases: int) -> GuaranteeOverTime:
    found = {one.holds_for: one for one in guarantees_over_time(plan, releases)}
    crowds = found.get("changing crowds, every release")
    if crowds is not None and crowds.kind == "proven":
        return crowds
    return found["answers that change, every release"]


def one_crowd(whole: Mapping[str, Any] | None) -> str:
    """Return the words that limit a statement to one crowd, where a release is a sum of several."""
    return "" if whole is None else ", for one crowd by itself"


class Fact(NamedTuple):
    """One number about the protection: its name, its value, its meaning."""

    name: str
    value: str
    meaning: str


def facts(
    plan: Plan,
    certificate: Mapping[str, Any] | None,
    reports: int,
    whole: Mapping[str, Any] | None = None,
) -> list[Fact]:
    """List the numbers behind the promise, each rounded to the safe side.

    `whole` is what holds for a sum of crowds, if the release is one.
    """
    rows = [Fact("Warning", "weak promise", sentence) for sentence in plan.warnings]
    rows += [] if whole is None else _facts_of_sum(whole)
    if certificate is not None:
        rows += _facts_of_certificate(plan, certificate, one_crowd(whole))
    q = float(plan.q)
    alone = single_report(plan.local_epsilon, q)
    rows.append(
        Fact(
            "Local",
            f"epsilon {text_up(plan.local_epsilon)}",
            alone or f"Revealed by one report alone, to {_sees_reports(plan)}.",
        )
    )
    if plan.memory is not None:
        differ = plan.survey.differing_bits
        always = float_up(local_epsilon(differ, plan.memory.q1, places=EXACT))
        rows.append(
            Fact(
                "For ever",
                f"epsilon {text_up(always)}",
                "For each different answer a person ever gives, however often it is reported.",
            )
        )
    sigma = grouped(text_up(sigma_in(plan, reports), 4))
    due, noise = "the flips", []
    if plan.noise is not None:
        due = "the flips and the noise"
        words = "Added by the leader and by the helper, each once for a crowd. One is enough."
        noise = [Fact("Noise", str(plan.noise), words)]
    return [
        *rows,
        *noise,
        Fact("Flips", f"q = {flip_in_words(q)}", "The probability that a device flips a bit."),
        Fact(
            "Precision",
            f"sigma {sigma} {'people' if whole is None else 'answers'}",
            f"The standard deviation of every count, due to {due} in {reports:,} reports.",
        ),
        Fact(
            "Fake reports",
            f"{text_up(shift_of_a_fake(q), 3)} people each",
            "The most by which one fake report shifts a count; a single fake report cannot be"
            " recognized.",
        ),
    ]


def _sees_reports(plan: Plan) -> str:
    """Name those who see single reports and their senders."""
    if plan.parties is None:
        return "the collector too"
    if plan.parties.one_operator:
        return "the operator of both parties"
    return f"{' and '.join(plan.parties.origins)} together"


def _facts_of_certificate(plan: Plan, certificate: Mapping[str, Any], about: str) -> list[Fact]:
    at = f"at epsilon {text_up(certificate['epsilon'])}{about}"
    proven, attack = certificate["proven"], certificate["attack"]
    rows = [
        Fact(
            "Proven",
            _at_most(proven["delta"][1]),
            f"{at}, whatever the others answered; a theorem ({proven['method']}).",
        ),
        Fact(
            "Attack",
            f"delta \N{GREATER-THAN OR EQUAL TO} {text_down(attack['delta'][0], 3)}",
            f"{at}, in the worst crowd known. The true delta is between the two.",
        ),
    ]
    if certificate["homogeneous"] is not None:
        rows.append(_sufficient(certificate["homogeneous"]["worst"], at))
    if "group_delta" in certificate:
        meaning = (
            f"{at}, for all of a person's reports; the plan allows"
            f" {plan.max_reports_per_person:,} in one release."
        )
        rows.append(Fact("Several reports", _at_most(certificate["group_delta"]), meaning))
    return rows


def _at_most(delta: float) -> str:
    return f"delta \N{LESS-THAN OR EQUAL TO} {text_up(delta, 3)}"


def _sufficient(worst: Mapping[str, Any], at: str) -> Fact:
    if worst["exhaustive"]:
        eta = f"\N{LESS-THAN OR EQUAL TO} {text_up(worst['eta'][1], 3)}"
        where = "in the worst homogeneous crowd"
    else:
        low, high = worst["eta"]
        eta = text_bracket(low, high, 3).replace("~ ", "\N{ALMOST EQUAL TO}")
        where = (
            f"the largest found of {worst['kinds']} kinds of homogeneous crowds; others may be"
            " worse"
        )
    return Fact("Sufficient", f"eta {eta}", f"{at}, {where}; not a guarantee.")


def _facts_of_sum(whole: Mapping[str, Any]) -> list[Fact]:
    person = f"For a person who is in all {whole['crowds']:,} crowds"
    theorem = f"a theorem ({whole['method']})."
    value = f"epsilon {text_up(whole['epsilon'], 4)}"
    meaning = f"{person}, at delta {text_up(whole['delta'], 3)}; {theorem}"
    rows = [Fact("Sum of crowds", value, meaning)]
    delta, at = whole["delta_at_promised"], f"at epsilon {text_up(whole['promised_epsilon'])}"
    if delta is not None and delta >= 1:
        rows.append(Fact("Sum of crowds", "nothing is proven", f"{person}, {at}."))
    elif delta is not None:
        rows.append(Fact("Sum of crowds", _at_most(delta), f"{person}, {at}; {theorem}"))
    return rows


def assumptions(plan: Plan, certificate: Certificate | None, tally: Tally) -> list[str]:
    if certificate is None:
        sentences = [
            "The promise compares any two answers that one person could give.",
            "Each person sends one report, with fresh flips; the epsilons of more reports add up.",
            "The device follows the plan; no other party needs to be trusted.",
        ]
    else:
        sentences = list(certificate.assumptions)
    crowds = len(tally.crowds)
    if tally.people_may_repeat:
        sentences.append(
            f"This is a sum of {crowds:,} crowds whose people may be the same. Statements about one"
            " report or one crowd hold for each by itself; statements about the sum hold for a"
            " person who is in all of them."
        )
    elif certificate is not None and tally.reports > plan.reports_needed:
        sentences.append(
            f"This release has {tally.reports:,} reports, more than the crowd of"
            f" {plan.reports_needed:,} that the promise assumes; a larger crowd hides at least as"
            " well."
        )
    if certificate is not None and tally.crowds and not tally.simulated:
        readable = min(crowd.reports for crowd in tally.crowds)
        if plan.parties is not None and readable < plan.reports_needed:
            sentences.append(
                f"Of the {plan.reports_needed:,} reports of a crowd, the analyzer could read"
                f" {readable:,}. The {plan.crowd_size or 0:,} honest reports that the promise needs"
                " are assumed to be among them: honest devices send reports that can be read, and"
                " the relay forwards them unchanged."
            )
    if crowds > 1 and not tally.people_may_repeat:
        sentences.append(
            "The publisher declares that no person is in two of the"
            f" {crowds:,} crowds that were added; it was not checked."
        )
    sentences += [
        f"The person who counted the reports declares that all reports of {crowd} are of one"
        " crowd, with none counted twice; it was not checked."
        for crowd in tally.crowds
        if not (crowd.released or crowd.unnamed)
    ]
    return sentences


def citation(document: Mapping[str, Any]) -> str:
    estimates = document["estimates"]
    reports = "simulated reports" if estimates["simulated"] else "randomized reports"
    parts = [
        document["survey"],
        f"Estimates from {estimates['reports']:,} {reports}{in_crowds(estimates)}",
        f"Plan {estimates['plan']}",
        f"Shoal {document['shoal']}",
        *([document["date"]] if document["date"] else []),
    ]
    return ". ".join(parts) + "."


OBSERVER_HEADS = ("observer", "sees", "guarantee", "assumption")


def observer_rows(observers: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the observers of a certificate's JSON as rows of a table."""
    return [(one["who"], one["sees"], what_holds(one), one["assumption"]) for one in observers]
