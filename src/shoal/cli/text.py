"""`shoal decode` and `shoal discover`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from shoal.analysis.tally import Tally
from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.support.files import write_text
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from shoal.analysis.text.results import DecodedTexts


@dataclass(frozen=True)
class _Proposal:
    propose: bool = opt("Instead: propose the size of a text question.")
    dictionary: int | None = opt("With --propose: how many candidates.", "K")
    crowd_size: int | None = cli.CROWD.when("With --propose")
    epsilon: str | None = cli.EPSILON.when("With --propose")
    delta: str | None = cli.DELTA.when("With --propose")
    view: cli.View = cli.VIEW.when("With --propose")
    max_bits: int = opt("With --propose: the largest report, in bits.", default=1024)


@cli.command("shoal decode plan.json tally.json candidates.txt")
def decode(
    *,
    plan_file: Path | None = cli.PLAN_FILE,
    tally_file: Path | None = cli.TALLY_FILE,
    candidate_file: Path | None = arg("CANDIDATES"),
    rappor: bool = opt("Instead: decode a RAPPOR collection, PARAMS.csv COUNTS.csv MAP.csv."),
    question: str | None = cli.QUESTION,
    column: str | None = opt("Which column of a table holds the candidates.", "NAME"),
    fdr: float = cli.FDR,
    level: float = cli.LEVEL,
    top: int = cli.TOP.but(default=20),
    plot: Path | None = cli.PLOT,
    proposal: _Proposal,
) -> out.Result:
    """Find which texts a crowd answered, from a list of candidates.

    CANDIDATES is a text file with one candidate per line, or a .csv or .parquet table with
    --column. A tally of fewer reports than the plan's crowd is refused (exit code 3).

    With --rappor the three files are those of a RAPPOR collection, and the promises made to the
    people in it are printed beside the results.
    """
    from shoal.analysis.text.decode import decode, read_candidates
    from shoal.analysis.text.rappor import decode_rappor

    if proposal.propose:
        if plan_file is not None or rappor:
            raise InputError("--propose takes no files; use it before you make a plan.")
        return _propose(fdr, proposal)
    if plan_file is None or tally_file is None or candidate_file is None:
        if rappor:
            raise InputError(
                "--rappor needs PARAMS.csv, COUNTS.csv and MAP.csv, as google/rappor writes them."
            )
        raise InputError("decode needs a plan, a tally and candidates, in this order.")
    texts: DecodedTexts
    if rappor:
        name = question or "value"
        collection = decode_rappor(
            plan_file, tally_file, candidate_file, fdr=fdr, level=level, name=name
        )
        texts, document = collection.texts, collection.to_json()
    else:
        plan = Plan.read(plan_file)
        tally = Tally.read(tally_file, plan)
        candidates = read_candidates(candidate_file, column)
        with out.progress("hashing candidates", len(candidates)) as advance:
            texts = decode(
                plan, tally, candidates, question=question, fdr=fdr, level=level, progress=advance
            )
        document = texts.to_json()
    cli.draw(plot, lambda: texts.plot(max(1, min(top, 40))))
    return out.Result(document, _show_texts(document, top))


def _propose(fdr: float, given: _Proposal) -> out.Result:
    dictionary, crowd, epsilon, delta = (
        given.dictionary, given.crowd_size, given.epsilon, given.delta,
    )  # fmt: skip
    if dictionary is None or crowd is None or epsilon is None or delta is None:
        raise InputError("--propose needs --dictionary, --crowd, --epsilon and --delta.")
    from shoal.planning.text_size import suggest_text_size

    size = suggest_text_size(
        dictionary, crowd, epsilon, delta, view=given.view, fdr=fdr, max_bits=given.max_bits
    )
    names = ["bits", "hashes", "cohorts", "q", "sigma", "detectable", "report_bytes"]
    text = (
        f"bits = {size.bits}\nhashes = {size.hashes}\ncohorts = {size.cohorts}\n"
        f"# flip probability {text_near(size.q, 6)}; sigma of a count {size.sigma:,.0f}"
        f" people; a text of {size.detectable:,} people is found with probability 0.95"
    )
    return out.Result({"view": given.view} | {name: getattr(size, name) for name in names}, text)


def _show_texts(document: dict[str, Any], top: int) -> out.Pieces:
    candidates, reports = document["candidates"], document["reports"]
    found = [row for row in candidates if row["found"]]
    yield out.title(
        document["question"],
        f"{reports:,} reports, {len(found):,} of {len(candidates):,} candidates found at a false"
        f" discovery rate of {text_near(document['fdr'])}",
        document["simulated"],
    )
    if document["notes"]:
        yield out.bullets(document["notes"])
    rows = []
    for row in found[:top]:
        sigma, low, high = (f"{row[key]:,.0f}" for key in ("sigma", "low", "high"))
        count, share = f"{row['count']:,.0f}", f"{row['count'] / reports:.2%}"
        rows.append((same_texts(row), count, share, sigma, low, high))
    yield out.table(["text", "count", "share", "sigma", "low", "high"], rows)
    if len(found) > top:
        yield f"{top:,} of {len(found):,} shown; see --top, or --json for all candidates"
    yield (
        f"unexplained: {document['unexplained']:,.0f} reports,"
        f" sigma {document['unexplained_sigma']:,.0f}"
    )
    for group in document["alike"][:5]:
        yield f"hard to tell apart: {out.escape(', '.join(group[:8]))}"
    if "promises" in document:
        yield from _promises(document)


def same_texts(row: dict[str, Any]) -> str:
    """Name a candidate, with those that have the same bits."""
    return " = ".join([row["value"], *row.get("same_as", [])[:3]])


def _promises(document: dict[str, Any]) -> out.Pieces:
    low, high = document["together"]
    yield (
        f"all texts together: {low:.2%} to {high:.2%} of the reports at {document['level']:g}; 100%"
        " if the files belong together and popular texts are candidates"
    )
    numbers = document["rappor"]
    shown = ", ".join(f"{name} = {text_near(numbers[name], 6)}" for name in ("h", "p", "q", "f"))
    yield f"\nPromise to each person, with {shown}:"
    for promise in document["promises"]:
        epsilon = promise["epsilon"]
        bound = "no bound" if epsilon is None else text_near(epsilon, 6)
        yield (
            f"{promise['name']:18}{bound}, against {promise['against']} ({promise['status']};"
            f" {promise['source']})"
        )
    if not numbers["f"]:
        yield "f = 0: nothing is permanent, so reports of one person average away."


@dataclass(frozen=True)
class _NewSurvey:
    make: cli.OutFile | None = opt("Instead: write such a survey.", "SURVEY.toml")
    length: int | None = opt("With --make: letters of the longest word.", "L")
    alphabet: str = opt("With --make: allowed letters.", default=ascii_lowercase)
    question: str | None = opt("Name of the text question (with --make: word by default).")
    bits: int = opt("With --make: size of a report.", default=1024)


@cli.command("shoal discover plan.json tally.json")
def discover(
    *,
    plan_file: Path | None = cli.PLAN_FILE,
    tally_file: Path | None = cli.TALLY_FILE,
    top: int | None = cli.TOP,
    fdr: float = cli.FDR.but(default=0.0001),
    candidates: int = opt("Maximum number of candidates built from letter pairs.", default=5000),
    level: float = cli.LEVEL,
    new: _NewSurvey,
) -> out.Result:
    """Find frequent words without a list of candidates.

    It needs a survey written with --make. Use that survey with `shoal plan`, `randomize` and
    `tally` as usual; its answers are one column with the word. A tally of fewer reports than the
    plan's crowd is refused (exit code 3).
    """
    from shoal.analysis.text.discovery import discover

    if new.make is not None:
        if plan_file is not None:
            raise InputError("--make takes no files; use it before you make a plan.")
        return _make_survey(new.make, new)
    if plan_file is None or tally_file is None:
        raise InputError("discover needs a plan and a tally, or --make to write a survey.")
    plan = Plan.read(plan_file)
    tally = Tally.read(tally_file, plan)
    found = discover(
        plan, tally, question=new.question, top=top, fdr=fdr, candidates=candidates, level=level
    )
    return out.Result(found.to_json(), str(found))


def _make_survey(output: Path, new: _NewSurvey) -> out.Result:
    from shoal.planning.text_size import discovery_survey

    if new.length is None:
        raise InputError("--make needs --length, the letters of the longest word to find.")
    if output.suffix.lower() != ".toml":
        raise InputError(f"a survey is written as .toml, got {output.name!r}.")
    question = new.question or "word"
    survey = discovery_survey(
        output.stem, new.length, alphabet=new.alphabet, question=question, bits=new.bits
    )
    write_text(output, survey.to_toml())
    text = (
        f"survey {survey.name} of {survey.bits:,} bits written to {output}; answers have one"
        f" column, {question}."
    )
    return out.Result(survey.to_json() | {"bits": survey.bits, "output": str(output)}, text)
