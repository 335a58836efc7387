"""`shoal plan`, `shoal plan over-time` and `shoal plan diff`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.certificate import check_promise
from shoal.planning.plan import honest_crowd
from shoal.planning.plan import plan as make_plan
from shoal.planning.share_noise import NO_FLIPS
from shoal.protocol.plan import EXPERIMENTAL, Aggregators, Plan
from shoal.protocol.signatures import ROLES, PublicParty, read_party
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_near, text_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shoal.analysis.power import Detection
    from shoal.planning.costs import PeopleNeeded
    from shoal.planning.guarantees import GuaranteeOverTime


_MIN_CROWD = opt(
    "The collector's min_crowd: warn about a smaller crowd.  [default: a collector's default]", "N"
)


@dataclass(frozen=True)
class _PlannedPromise:
    """The arguments of `plan`."""

    crowd_size: int | None = cli.CROWD
    epsilon: str | None = cli.EPSILON
    delta: str | None = cli.DELTA
    eta: str | None = opt("With --promise sufficient: the largest eta allowed.", "H")
    q: str | None = cli.Q
    promise: Literal["proven", "sufficient", "three-sigma", "local"] | None = opt(
        "Kind of guarantee.  [default: proven, or local without a crowd]"
    )
    view: cli.View = cli.VIEW
    local_epsilon: str | None = opt("The largest epsilon of a single report by itself.", "E")
    window: int | None = opt(
        "Each person reports at most once in a window of this length, such as 1d.",
        "TIME",
        type=cli.LENGTH,
    )
    honest_fraction: str | None = opt(
        "The part of each crowd that is honest, such as 0.9.", "PART", "--honest"
    )
    noise: Literal["flips", "aggregators", "laplace", "gaussian"] = opt(
        "With a leader: flips of devices, or noise of both aggregators, the better or this kind.",
        default="flips",
    )
    accept_weak_promise: bool = cli.ACCEPT_WEAK_PROMISE


def _rows(
    survey: Survey = cli.SURVEY,
    survey_file: Path | None = arg("[SURVEY.toml]"),
    crowd_of: Path | None = opt(
        "Instead of --crowd: a table of answers; its number of rows is the crowd.", "DATA"
    ),
) -> int | None:
    """Count the rows of a table as `shoal randomize` would read them."""
    if crowd_of is None:
        return None
    from shoal.device.arrays.files import read_answers
    from shoal.support.table_format import DEFAULT_FORMAT, TableFormat

    declared = DEFAULT_FORMAT
    if survey_file is not None and b"[table]" in survey_file.read_bytes():
        declared = TableFormat.from_toml(survey_file)
    with out.progress("counting") as advance:
        rows = 0
        for original in read_answers(survey, crowd_of, declared):
            rows += len(original)
            advance(len(original))
    return rows


@dataclass(frozen=True)
class _Parties:
    relay: str | None = opt("Public file or origin of the relay: it sees who sends.", "FILE_OR_URL")
    analyzer: str | None = opt(
        "Public file or origin of the analyzer: it sees the reports.", "FILE_OR_URL"
    )
    leader: str | None = opt(
        "Public file or origin of the leader of DAP (experimental).", "FILE_OR_URL"
    )
    helper: str | None = opt(
        "Public file or origin of the helper: each sees one share of a report.", "FILE_OR_URL"
    )
    max_weight: int | None = opt(
        "With a leader: how many bits may be set.  [default: as few as will do]", "W"
    )

    @cached_property
    def files(self) -> dict[str, PublicParty]:
        """The public files that are given, by the role of their party."""
        given = {role: getattr(self, role, None) for role in ROLES}
        return {
            role: read_party(Path(value), role)[0]
            for role, value in given.items()
            if value is not None and "://" not in value
        }

    def plan(self, make: Callable[..., Plan], survey: Survey, **wish: Any) -> Plan:
        """Make a plan for these parties, with the mark of their files."""
        files = self.files.values()
        wish |= {one.name: getattr(self, one.name) for one in fields(self)}
        made = make(survey, **wish | {party.role: party.url for party in files})
        one_key = len({party.signing_key for party in files}) < len(files)
        if made.parties is not None and (one_key or any(party.mark for party in files)):
            made = replace(made, parties=replace(made.parties, one_operator=True))
        return made

    @property
    def device_key(self) -> dict[str, str]:
        """The key that devices pin, if it is known."""
        analyzer = self.files.get("analyzer")
        return {} if analyzer is None else {"device_key": analyzer.signing_key}


@dataclass(frozen=True)
class _Files:
    """What is written: the plan, and a chart of it."""

    output: cli.OutFile | None = cli.output("the plan")
    force: bool = cli.FORCE
    plot: Path | None = cli.PLOT
    picture: cli.Picture = cli.PICTURE.but(default="precision")

    def write(self, plan: Plan) -> None:
        cli.write_plan(plan, self.output, self.force)
        cli.draw(self.plot, self.picture, plan)


@cli.command(
    "shoal plan survey.toml --crowd 10000 --epsilon 1 --delta 1e-6 -o plan.json",
    cls=cli.CommandOrGroup,
)
def plan(
    *,
    survey: Survey = cli.SURVEY,
    promise: _PlannedPromise,
    rows: int | None = cli.made_by(_rows),
    within: float | None = opt(
        "Instead of --crowd: the error allowed for every share, such as 2%.", "PART"
    ),
    detect: float | None = opt(
        "Instead of --crowd: the difference of two arms to be found, in percentage points.",
        "POINTS",
    ),
    share: float | None = opt(
        "With --within: a share of a population that the people are a sample of. With --detect:"
        " control's share.",
        "PART",
    ),
    weekly: int | None = opt("With --detect: how many people report in a week.", "N"),
    level: float = cli.LEVEL,
    min_crowd: int | None = _MIN_CROWD,
    parties: _Parties,
    files: _Files,
) -> out.Result:
    """Choose how often each device flips a bit.

    This plans one release. Leave out one of --q, --crowd, --epsilon and --delta: it is computed,
    rounded in the safe direction and certified. Devices and the analyst agree on the plan file.

    With --view counts the promise holds against observers who see only how many reports set each
    bit. That needs far less noise, but no observer may see a single report.

    With --relay and --analyzer two parties share the work: neither sees who sent which report. With
    --leader, --helper and --view counts each sees one share of a report, and nobody a report (DAP).
    With --noise aggregators these two add the noise. It is often less, but together they could see
    true answers.

    With --within the crowd is computed: as many people as it takes to know every share to within
    this error, in the chosen view. The number for the other view is printed beside it.

    With --detect the crowd is computed from an experiment: as many people as it takes to find such
    an effect with a power of 80 %. Those that open answers and local noise take are printed too.

    With --crowd-of the crowd is the number of rows of a table, or with --honest the honest part of
    them. That number becomes public.
    """
    more: dict[str, Any] = {}
    shown: out.Pieces = iter(())
    arguments = vars(promise)
    given = (rows, promise.crowd_size, within, detect)
    if sum(one is not None for one in given) > 1 and (rows is not None or detect is not None):
        raise InputError("give one of --crowd, --crowd-of, --within and --detect.")
    if promise.noise != "flips" and (within, detect) != (None, None):
        raise InputError("--within and --detect plan for flips; give --crowd with this --noise.")
    if rows is not None:
        arguments = {**arguments, "crowd_size": honest_crowd(rows, promise.honest_fraction)}
    if within is not None:
        known, size = _people_needed(survey, within, share, level, promise)
        more, shown = {"people_needed": known.to_json()}, _show_needed(known)
        arguments = {**arguments, "crowd_size": size}
    elif detect is not None:
        found, size = _people_to_detect(survey, detect, share, level, promise)
        more, shown = {"people_needed": found.to_json()}, _show_detection(found, weekly)
        arguments = {**arguments, "crowd_size": size}
    elif share is not None:
        raise InputError("--share needs --within or --detect.")
    if weekly is not None and detect is None:
        raise InputError("--weekly needs --detect.")
    with out.waiting():
        made = parties.plan(make_plan, survey, **arguments)
    files.write(made)
    with out.waiting():
        document = _document(made, min_crowd) | parties.device_key
    text = _show(made, document, files.output)
    if rows is not None:
        public = f"The table has {rows:,} rows. With the plan this number becomes public.\n"
        text = chain([public], text)
    return out.Result(lambda: _whole(made, document) | more, chain(shown, text))


def _people_needed(
    survey: Survey, within: float, share: float | None, level: float, promise: _PlannedPromise
) -> tuple[PeopleNeeded, int]:
    from shoal.planning.costs import people_needed  # it loads SciPy

    asked = _asked_promise("--within", promise)
    with out.waiting():
        needed = people_needed(survey, **asked, within=within, share=share, level=level)
    return needed, _size(needed, promise, f"knows a share within {within:g}", "error")


def _people_to_detect(
    survey: Survey, points: float, share: float | None, level: float, promise: _PlannedPromise
) -> tuple[Detection, int]:
    from shoal.analysis.power import people_to_detect  # it loads SciPy

    asked, given = _asked_promise("--detect", promise), 0.5 if share is None else share
    with out.waiting():
        needed = people_to_detect(survey, points / 100, **asked, share=given, level=level)
    return needed, _size(needed, promise, f"finds {points:g} points", "effect")


def _asked_promise(option: str, promise: _PlannedPromise) -> dict[str, Any]:
    epsilon, delta, given = promise.epsilon, promise.delta, (promise.crowd_size, promise.q)
    if given != (None, None) or epsilon is None or delta is None:
        raise InputError(
            f"{option} computes how many people are needed: give --epsilon and --delta, and neither"
            " --crowd nor --q."
        )
    return {"epsilon": epsilon, "delta": delta}


def _size(needed: PeopleNeeded | Detection, promise: _PlannedPromise, does: str, what: str) -> int:
    size = needed.counts if promise.view == "counts" else needed.reports
    if size is None:
        raise InputError(
            f"no crowd of up to 10^12 people {does} at this promise; allow a larger {what}, epsilon"
            " or delta."
        )
    return size


@dataclass(frozen=True)
class _PromiseOverTime:
    """The arguments of `plan_with_memory`."""

    crowd_size: int = cli.CROWD
    epsilon: str = cli.EPSILON
    delta: str = cli.DELTA
    horizon: str | None = opt("How often and how long: 'daily for a year'.", "WORDS")
    releases: int | None = cli.RELEASES
    lifetime_epsilon: str | None = opt(
        "The largest epsilon of all reports together.", "E", "--lifetime"
    )
    distinct_answers: int = opt("How many different answers one person may give.", "K", default=1)
    fresh: str = opt("The part of the flips that is fresh in each report.", "PART", default="0.5")
    view: cli.View = cli.VIEW
    accept_weak_promise: bool = cli.ACCEPT_WEAK_PROMISE


@cli.command(
    "shoal plan over-time survey.toml --horizon 'daily for a year' \\\n"
    "    --crowd 10000 --epsilon 1 --delta 1e-6 -o plan.json",
    "over-time",
    group=plan,
)
def over_time(
    *,
    survey: Survey = cli.SURVEY,
    promise: _PromiseOverTime,
    min_crowd: int | None = _MIN_CROWD,
    parties: _Parties,
    files: _Files,
) -> out.Result:
    """Plan for people who report again and again.

    Some flips become permanent, so that they do not average away. The plan states the
    guarantees for one release and over time. Give --horizon or --releases.
    """
    from shoal.planning.guarantees import guarantees_over_time
    from shoal.planning.memory import parse_horizon, plan_with_memory

    if (promise.horizon is None) == (promise.releases is None):
        raise InputError("give one of --horizon and --releases.")
    with out.waiting():
        made = parties.plan(plan_with_memory, survey, **vars(promise))
        count = promise.releases
        if promise.horizon is not None:
            count = parse_horizon(promise.horizon).releases
        assert count is not None
        guarantees = guarantees_over_time(made, count)
    files.write(made)
    with out.waiting():
        document = _document(made, min_crowd, guarantees) | parties.device_key
    return out.Result(lambda: _whole(made, document), _show(made, document, files.output))


@cli.command("shoal plan diff old.json new.json", group=plan)
def diff(
    old_file: Path = arg("OLD.json"),
    new_file: Path = arg("NEW.json"),
    accept_weak_promise: bool = cli.ACCEPT_WEAK_PROMISE,
) -> out.Result:
    """Show how a change of a plan affects the people who answer.

    The result is one of: same, label, new plan (needs new consent), forbidden (protects less under
    the same name; exit code 3). With --accept-weak-promise it may protect less.

    If both surveys have the same name, the guarantees of both plans are computed: for one report,
    one release, a year, and without a time limit.
    """
    from shoal.planning.plan_diff import plan_diff

    old, new = Plan.read(old_file), Plan.read(new_file)
    with out.waiting():
        change = plan_diff(old, new, accept_weak_promise=accept_weak_promise)
    colour = {"forbidden": "red", "new plan": "yellow"}.get(change.kind, "green")
    ids = f"{change.old_id[:12]} to {change.new_id[:12]}"
    text: list[Any] = [f"[bold {colour}]{change.kind}[/]: {ids}", out.bullets(change.reasons)]
    error = None
    if change.kind == "forbidden":
        error = PrivacyRefusal("the new plan protects less than the old one of the same name.")
    return out.Result(change.to_json(), text, error=error)


def _below_minimum(plan: Plan, min_crowd: int | None) -> Iterator[str]:
    """Yield a warning if collectors would refuse the plan for its crowd."""
    from shoal.server.core.settings import ServiceSettings

    minimum = ServiceSettings.min_crowd if min_crowd is None else min_crowd
    if plan.crowd_size is not None and plan.crowd_size < minimum:
        whose = "a collector's default" if min_crowd is None else "the collector's"
        yield (
            f"The crowd of {plan.crowd_size:,} is below {whose} minimum of {minimum:,}. A collector"
            f" refuses the plan unless its setting min_crowd is {plan.crowd_size:,} or less."
        )


def _document(
    plan: Plan, min_crowd: int | None, guarantees: Sequence[GuaranteeOverTime] = ()
) -> dict[str, Any]:
    other = None
    if plan.crowd_size is not None:
        from shoal.planning.bounds import other_view

        other = other_view(plan)
    promise = check_promise(plan).promise
    document = {
        "id": plan.id,
        "view": plan.view,
        "fragments": plan.fragments._asdict(),
        "crosses": [[side.name for side in cross.sides] for cross in plan.survey.crosses],
        "q": float(plan.q),
        "q_fraction": plan.q.to_json(),
        "bits": plan.bits,
        "crowd_size": plan.crowd_size,
        "reports_needed": None if plan.crowd_size is None else plan.reports_needed,
        "window": plan.window,
        "parties": None if plan.parties is None else plan.parties.to_json(),
        "promise": promise.kind,
        "epsilon": float(promise.epsilon),
        "delta": None if promise.delta is None else float(promise.delta),
        "eta": None if promise.eta is None else float(promise.eta),
        "sigma_count": None,
        "local_epsilon": plan.local_epsilon,
        "other_view": None
        if other is None
        else {"view": other.view, "q": other.q, "sigma_count": other.sigma, "reason": other.reason},
        "certificate": None,
        "warnings": [*plan.warnings, *_below_minimum(plan, min_crowd)],
    }
    if isinstance(plan.parties, Aggregators):
        from shoal.planning.share_noise import both_kinds

        kinds = both_kinds(plan)
        document["noise"] = None if kinds is None else kinds.to_json()
    if plan.memory is not None:
        document["memory"] = {"q1": float(plan.memory.q1), "q2": float(plan.memory.q2)}
        document["statements"] = [one.to_json() for one in guarantees]
    return document


def _whole(plan: Plan, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the certificate, which takes longer than all that people see."""
    if plan.crowd_size is None:
        return document
    from shoal.planning.certificate import certify

    with out.waiting():
        certificate = certify(plan).to_json(epsilon=float(plan.promise.epsilon))
    return document | {"sigma_count": certificate["sigma_count"], "certificate": certificate}


def _show_needed(needed: PeopleNeeded) -> out.Pieces:
    of = "of all who report"
    if needed.share is not None:
        of = f"of a population in which it is {text_near(100 * needed.share)} %"
    yield (
        f"To know a share {of} within {text_near(100 * needed.within)} % of all, at"
        f" {text_near(needed.level)} (normal, approximate), to about 1 %:"
    )
    yield from _show_sizes(needed)


def _show_detection(needed: Detection, weekly: int | None) -> out.Pieces:
    several = f", {needed.comparisons} comparisons (Holm)" if needed.comparisons > 1 else ""
    yield (
        f"To find a difference of {text_near(100 * needed.effect)} points from"
        f" {text_near(100 * needed.share)} % in control, at {text_near(needed.level)} with power"
        f" {text_near(needed.power)}{several} (normal, approximate), to about 1 %:"
    )
    yield from _show_sizes(needed, weekly, [("open answers", needed.open)])


def _show_sizes(
    needed: PeopleNeeded | Detection,
    weekly: int | None = None,
    more: Sequence[tuple[str, int | None]] = (),
) -> out.Pieces:
    rows = [("--view reports", needed.reports), ("--view counts", needed.counts)]
    for name, people in [*more, *rows, ("--promise local", needed.local)]:
        number = "more than 10^12 people" if people is None else f"{people:,} people"
        if people is not None and weekly:
            weeks = -(-people // weekly)
            number += f", {weeks:,} week{'s' * (weeks > 1)} at {weekly:,} a week"
        yield f"{name:17}{number}"
    yield ""


def _show(plan: Plan, document: dict[str, Any], output: Path | None) -> out.Pieces:
    yield out.title(plan.survey.name, f"{out.bits_in_words(plan.bits)} a report")
    for name, text in _facts(plan, document):
        yield f"{name:17}{text}" if name else str(text)
    yield out.Plain(f"plan id          {plan.id}")
    yield from out.written(output, "written to      ")
    yield from out.warnings(document["warnings"])
    if isinstance(plan.parties, Aggregators):
        yield f"[yellow]{EXPERIMENTAL}[/yellow]"
    if document.get("statements"):
        yield from out.over_time(document["statements"])


def _facts(plan: Plan, document: dict[str, Any]) -> list[tuple[str, object]]:
    flips = plan.q if plan.q != NO_FLIPS else f"{plan.q}, the smallest: no flips in effect"
    facts: list[tuple[str, object]] = [("flip probability", flips)]
    if plan.memory is not None:
        facts += [("  permanent", plan.memory.q1), ("  fresh on top", plan.memory.q2)]
    facts.append(("promise", check_promise(plan).in_words))
    crowd = "none needed" if plan.crowd_size is None else out.reports_in_words(plan.crowd_size)
    if plan.crowd_size is not None and plan.reports_needed > plan.crowd_size:
        crowd = f"{plan.crowd_size:,} honest reports, released with {plan.reports_needed:,} in all"
    facts.append(("crowd", crowd))
    if plan.parties is not None:
        facts += plan.parties.origins.items()
        if "device_key" in document:
            facts.append(("key for devices", document["device_key"]))
        facts += _limit(plan)
    if plan.window is not None:
        facts.append(("window", f"{plan.window} seconds; a crowd must fill within one"))
    if plan.crowd_size is None:
        return facts
    from shoal.planning.certificate import certify
    from shoal.planning.threats import single_report

    sigma = certify(plan).sigma
    facts.append(("precision", f"sigma of a count: {sigma:,.0f} of {plan.crowd_size:,} people"))
    if sigma > plan.crowd_size:
        noise = "counts will be mostly noise; use a larger crowd or epsilon"
        facts.append(("", f"[yellow]{noise}[/yellow]"))
    if plan.survey.arms:
        facts += _detectable(plan)
    facts.append(("local epsilon", f"{text_up(plan.local_epsilon)}, of a single report"))
    warning = single_report(plan.local_epsilon, float(plan.q))
    if warning is not None:
        facts.append(("", warning))
    if document.get("noise"):
        facts += _noises(plan, document["noise"])
    if (other := document["other_view"]) is not None:
        words = other["reason"]
        if words is None:
            q, sigma_of_other = text_near(other["q"], 3), text_near(other["sigma_count"], 3)
            words = f"would take q = {q}, sigma {sigma_of_other} people"
        facts.append((f"--view {other['view']}", words))
    return facts


def _noises(plan: Plan, kinds: dict[str, Any]) -> list[tuple[str, str]]:
    """Compare flips of devices with noise of aggregators: sigmas, and against whom each holds."""
    flips, added = kinds["flips"], kinds["aggregators"]
    by_both = ["aggregators add noise: no scale keeps this promise"]
    if added is not None:
        one, both = (text_near(added[f"sigma_if_{who}"], 3) for who in ("one_adds", "both_add"))
        by_both = [
            f"both aggregators add discrete {added['kind'].capitalize()} noise,"
            f" scale {text_up(float(added['scale']))}:",
            f"sigma {one} each, {both} together; holds against a malicious",
            "aggregator, if the other adds its noise;",
            f"leader + helper: {_left_over(plan)}",
        ]
    by_flips = ["devices flip: no flip probability keeps this promise"]
    if flips is not None:
        by_flips = [
            f"devices flip: sigma {text_near(flips['sigma'], 3)}; holds against one aggregator"
            " that",
            f"forges and drops nothing, with {plan.crowd_size:,} honest people;",
            f"leader + helper: local epsilon {text_up(flips['local_epsilon'])}",
        ]
    used, other = (by_flips, by_both) if plan.noise is None else (by_both, by_flips)
    option = "aggregators" if plan.noise is None else "flips"
    return [
        ("noise", used[0]),
        *(("", f"{'':17}{line}") for line in used[1:]),
        ("", f"with --noise {option} instead:"),
        *(("", f"{'':17}{line}") for line in other),
    ]


def _left_over(plan: Plan) -> str:
    if plan.noise is None or plan.q == NO_FLIPS:
        return "true answers"
    return f"epsilon {text_up(plan.local_epsilon)}"


def _limit(plan: Plan) -> list[tuple[str, str]]:
    from shoal.planning.bounds import overflow_of

    overflow = overflow_of(plan)
    if overflow is None:
        return []
    assert plan.crowd_size is not None
    relied_on, epsilon = plan.crowd_size, float(plan.promise.epsilon)
    if plan.noise is not None:
        relied_on, epsilon = 1, 0.0
    price = overflow.price(relied_on, float(plan.q), epsilon)
    cost = f"dropped bits cost {text_up(price, 2)} of delta" if price else "every bit fits"
    return [("max_weight", f"{overflow.max_weight} for {plan.bits} bits; {cost}")]


def _detectable(plan: Plan) -> list[tuple[str, object]]:
    """Say which difference of two arms one crowd finds, beside open answers and local noise."""
    from shoal.analysis.experiments import outcomes_of  # it loads SciPy
    from shoal.analysis.power import detectable_effect

    arms = [arm.name for arm in plan.survey.arms if outcomes_of(plan.survey, arm)]
    facts: list[tuple[str, object]] = []
    for arm in arms:
        effects = detectable_effect(plan, arm=arm)
        planned, plain, local = (
            "no effect" if one is None else f"{text_up(100 * one, 3)} points"
            for one in (effects.planned, effects.open, effects.local)
        )
        facts.append(("detects", f"{planned} between arms, at 50 % with power 0.8"))
        facts.append(("", f"                 open answers {plain}, local noise {local}"))
    return facts
