"""Search for crowds that break the papers' conjecture (SDP 1.2, claim 1).

SDP conjectures that the homogeneous crowd with an outlier, "forward", is the worst collection. It
is not. `Searching` tries every collection of a small world, or families of a large
one, and compares the worst with forward, reverse (the same pair exchanged), the worst homogeneous
crowd and the proven bound. The find is a lower bound of the truth and the proven bound an upper
one, so a find beyond it would be a bug in Shoal.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

from shoal.errors import InputError
from shoal.planning.bounds import domain_of
from shoal.protocol.flip_probability import FlipProbability, exact_fraction
from shoal.protocol.survey import Survey
from shoal.support.checks import check_integer, check_number
from shoal.support.files import read_json, write_json
from shoal.support.results import Displayed, Section
from shoal.support.rounding import text_down, text_near, text_up
from shoal.theory import homogeneous
from shoal.theory.brackets import Bracket
from shoal.theory.domains import Domain, Triple, differing_bits
from shoal.theory.proven import proven_delta
from shoal.theory.worlds import CollectionPair, SearchQuestion, World, homogeneous_best, world_of

Measure = Literal["delta", "eta"]

_SAVE_EVERY = 3.0
_MAX_BITS = 200
_RIVALS = {
    "forward": "the conjectured one",
    "reverse": "its reverse",
    "homogeneous": "every homogeneous one tried",
}


@dataclass(frozen=True, repr=False)
class Search(Displayed):
    """What a search found. Values are brackets ``(low, high)``."""

    domain: Domain
    crowd_size: int
    q: Fraction
    epsilon: float
    measure: Measure
    exhaustive: bool
    description: str
    searched: int
    forward: Bracket
    reverse: Bracket
    best: tuple[Triple, Bracket]
    worst: CollectionPair
    proven: Bracket

    @property
    def beats(self) -> tuple[str, ...]:
        """Which of forward, reverse and homogeneous the worst pair surely exceeds."""
        rivals = {"forward": self.forward, "reverse": self.reverse, "homogeneous": self.best[1]}
        # a homogeneous find is its own rival, evaluated in another way
        return tuple(name for name, rival in rivals.items() if self.worst.value.low > rival.high)

    @property
    def conjecture(self) -> Literal["violated", "not violated here"]:
        """Whether some pair is surely worse than forward, SDP's own."""
        return "violated" if "forward" in self.beats else "not violated here"

    @property
    def exceeds_proven(self) -> bool:
        """Whether a find contradicts the theorem; if so, Shoal has a bug."""
        return self.worst.value.low > self.proven.high

    def _headline(self) -> str:
        return (
            f"{self.measure} at epsilon {text_near(self.epsilon, 6)}, q ="
            f" {text_near(float(self.q), 6)}, crowd of {self.crowd_size:,}"
        )

    def _sections(self) -> list[Section]:
        triple, value = self.best
        others = " + ".join(f"{count} x {_text(vector)}" for vector, count in self.worst.others)
        x, x_prime = _text(self.worst.x), _text(self.worst.x_prime)
        bounds = [
            ("forward", self.forward, "all others agree with x; the conjectured worst case"),
            ("reverse", self.reverse, "all others agree with x'"),
            ("homogeneous", value, f"worst crowd of equals tried: (a, b, c) = {tuple(triple)}"),
            (
                "worst found",
                self.worst.value,
                f"others {others or 'none'}; x = {x}, x' = {x_prime}",
            ),
        ]
        rows = [(name, f">= {text_down(at.low)}", words) for name, at, words in bounds]
        proven = f"<= {text_up(self.proven.high)}", "no crowd is worse; a theorem"
        return [Section(("", "", ""), [*rows, ("proven", *proven)], prose=True)]

    def _remarks(self) -> tuple[str, ...]:
        how = "every crowd, up to symmetry" if self.exhaustive else self.description
        pairs = "pair" if self.searched == 1 else "pairs"
        verdict = f"The conjecture is {self.conjecture}"
        if "forward" in self.beats:
            *first, last = (_RIVALS[name] for name in self.beats)
            beaten = f"{', '.join(first)} and {last}" if first else last
            verdict += f": the worst crowd found is worse than {beaten}"
        return f"Searched {self.searched:,} {pairs} of collections: {how}.", f"{verdict}."

    def to_json(self) -> dict[str, Any]:
        """Return the search as plain JSON values."""
        triple, value = self.best
        return {
            "domain": _domain_json(self.domain),
            "crowd_size": self.crowd_size,
            "q": float(self.q),
            "epsilon": self.epsilon,
            "measure": self.measure,
            "exhaustive": self.exhaustive,
            "world": self.description,
            "searched": self.searched,
            "homogeneous": {
                "forward": list(self.forward),
                "reverse": list(self.reverse),
                "best": {**triple._asdict(), "value": list(value)},
            },
            "worst": _pair_json(self.worst),
            "proven": list(self.proven),
            "beats": list(self.beats),
            "conjecture": self.conjecture,
        }


class Searching:
    """A search for the worst pair of collections: how many `steps` it has, how many are `done`.

    `q` is taken exactly. `state` is a file of the progress: the same search continues from it.

    Examples
    --------
    >>> import math
    >>> from shoal import Flags, Survey
    >>> survey = Survey("two flags", (Flags("flags", ("a", "b")),))
    >>> result = Searching(survey, crowd_size=10, q="0.1", epsilon=math.log(9)).run()
    >>> result.conjecture, result.exhaustive, round(result.worst.value.low, 4)
    ('violated', True, 0.1408)
    >>> result.worst.others, result.worst.x, result.worst.x_prime
    ((((0, 0), 5), ((1, 1), 4)), (1, 1), (0, 0))
    """

    def __init__(
        self,
        survey: Survey,
        *,
        crowd_size: int,
        q: object,
        epsilon: float,
        measure: Measure = "delta",
        state: Path | str | None = None,
    ) -> None:
        domain = domain_of(survey)
        size = check_integer("crowd_size", crowd_size, lowest=1, highest=10**9)
        self._q = q.fraction if isinstance(q, FlipProbability) else exact_fraction(q)
        if not 0 <= check_number("epsilon", epsilon) <= 700:
            raise InputError(f"epsilon must be between 0 and 700, got epsilon={epsilon}.")
        if measure not in get_args(Measure):
            raise InputError(f"measure must be delta or eta, got {measure!r}.")
        if survey.bits > _MAX_BITS:
            raise InputError(
                f"a search takes surveys of at most {_MAX_BITS} bits, this one has {survey.bits}."
            )
        if differing_bits(domain) == 0:
            raise InputError(
                "the survey allows only one answer, so nothing can be learned from it."
            )
        self._measure = measure
        self._state = None if state is None else Path(state)
        self._question = SearchQuestion(
            domain, size, float(self._q), float(epsilon), measure == "eta"
        )
        self._world: World = world_of(*self._question)
        self.steps = self._world.steps
        self.done = 0
        self._searched = 0
        self._worst: CollectionPair | None = None
        if self._state is not None and self._state.exists():
            self._load(self._state)

    def run(self, progress: Callable[[int], None] | None = None) -> Search:
        """Do the remaining steps and return the result."""
        saved = time.monotonic()
        try:
            while self.done < self.steps:
                pair, looked_at = self._world.step(self.done)
                self.done += 1
                self._searched += looked_at
                # a value that is equal up to round-off is no improvement
                if self._worst is None or pair.value.low > self._worst.value.low * (1 + 1e-9):
                    self._worst = pair
                if time.monotonic() - saved > _SAVE_EVERY:
                    self._save()
                    saved = time.monotonic()
                if progress is not None:
                    progress(1)
        finally:
            self._save()
        return self._result()

    def _result(self) -> Search:
        assert self._worst is not None
        domain, crowd, q, epsilon, eta = self._question
        measure = homogeneous.eta if eta else homogeneous.delta
        reach = differing_bits(domain)
        return Search(
            domain=domain,
            crowd_size=crowd,
            q=self._q,
            epsilon=epsilon,
            measure=self._measure,
            exhaustive=self._world.exhaustive,
            description=self._world.description,
            searched=self._searched,
            forward=measure((reach, 0, 0), crowd, q, epsilon),
            reverse=measure((0, reach, 0), crowd, q, epsilon),
            best=homogeneous_best(*self._question),
            worst=self._worst,
            proven=proven_eta(domain, crowd, q, epsilon)
            if eta
            else proven_delta(domain, crowd, q, epsilon).delta,
        )

    @property
    def _name(self) -> dict[str, Any]:
        return {
            "domain": _domain_json(self._question.domain),
            "crowd_size": self._question.N,
            "q": str(self._q),
            "epsilon": self._question.epsilon,
            "measure": self._measure,
            "steps": self.steps,
        }

    def _save(self) -> None:
        if self._state is None:
            return
        progress = {"done": self.done, "searched": self._searched}
        worst = None if self._worst is None else _pair_json(self._worst)
        write_json(self._state, {"search": self._name, **progress, "worst": worst})

    def _load(self, path: Path) -> None:
        document = read_json(path, "search state", InputError)
        if not isinstance(document, dict) or document.get("search") != self._name:
            raise InputError(
                f"{path} keeps the state of another search; name another file, or remove it."
            )
        try:
            self.done = check_integer("done", document["done"], lowest=0, highest=self.steps)
            self._searched = check_integer("searched", document["searched"], lowest=0)
            self._worst = None if document["worst"] is None else _pair(document["worst"])
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            raise InputError(f"{path} is not a whole search state; remove it.") from problem
        if (self._worst is None) != (self.done == 0):
            raise InputError(f"{path} is not a whole search state; remove it.")


def proven_eta(domain: Domain, crowd_size: int, q: float, epsilon: float) -> Bracket:
    """Bound eta(epsilon) for every collection, from the proven delta at smaller epsilons.

    Theorem: where R > e^epsilon, the hockey stick at epsilon' < epsilon collects at least
    ``1 - e^(epsilon' - epsilon)`` of the probability, so eta <= delta(epsilon') divided by that.

    >>> from shoal.theory.domains import flags
    >>> proven_eta((flags(1),), 10, 0.25, 2.0)
    Bracket(low=0.0, high=0.0)
    """
    if proven_delta(domain, 1, q, epsilon).delta.high == 0.0 and proven_delta(
        domain, 1, q, math.nextafter(epsilon, 0)
    ).delta.high == 0.0:  # fmt: skip
        return Bracket(0.0, 0.0)  # R never exceeds the local ratio
    best = Bracket(1.0, 1.0)
    for part in (*(i / 16 for i in range(16)), 0.96, 0.98, 0.99):
        if epsilon == 0.0:
            break
        share = -math.expm1((part - 1.0) * epsilon)
        bound = proven_delta(domain, crowd_size, q, part * epsilon, 1e-3).delta
        scaled = bound.times(1.0 / share * (1.0 + 1e-14)).capped(1.0)
        best = min(best, scaled, key=lambda bracket: bracket.high)
    return best


def _text(vector: tuple[int, ...]) -> str:
    return "".join(map(str, vector))


def _domain_json(domain: Domain) -> list[dict[str, int]]:
    return [
        {"bits": block.bits, "min_set_bits": block.lowest, "max_set_bits": block.highest}
        for block in domain
    ]


def _pair_json(pair: CollectionPair) -> dict[str, Any]:
    return {
        "value": list(pair.value),
        "others": {_text(vector): count for vector, count in pair.others},
        "x": _text(pair.x),
        "x_prime": _text(pair.x_prime),
    }


def _pair(document: dict[str, Any]) -> CollectionPair:
    low, high = document["value"]
    others = tuple((_vector(text), int(count)) for text, count in document["others"].items())
    value = Bracket(float(low), float(high))
    return CollectionPair(value, others, _vector(document["x"]), _vector(document["x_prime"]))


def _vector(text: str) -> tuple[int, ...]:
    return tuple(int(bit) for bit in text)
