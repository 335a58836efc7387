"""The plan that RAPPOR's parameters mean, and what they promise.

RAPPOR sets a bit of a memoized vector to 1, to 0 or to the truth with probabilities f/2, f/2 and
1 - f, then reports a 1 with probability q where that bit is set and p where it is not. The first
step is Shoal's permanent flip with q1 = f/2. The second is Shoal's channel only if p = 1 - q, and
then q2 = p. Otherwise a bit's two rates, p* where the truth is 0 and q* where it is 1, are between
two symmetric channels. With the odds A = q*/p* and B = (1 - p*)/(1 - q*):

* s = 1 / (1 + min(A, B)): flipping some of RAPPOR's reported bits makes exactly the flip
  probability s, and no smaller one. A plan with s is at least as private, whatever the crowd.
* t = 1 / (1 + max(A, B)): flipping some bits of reports with the flip probability t makes exactly
  RAPPOR's, and no larger t does. RAPPOR's own reports keep whatever t is proven to keep.

Both are theorems (post-processing), and s = t = p* where p = 1 - q.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.planning.certificate import certify, check_promise
from shoal.planning.plan import plan
from shoal.protocol.flip_probability import MAX_DIGITS, FlipProbability
from shoal.protocol.plan import MAX_CROWD, Memory, Plan
from shoal.protocol.survey import Survey, Text
from shoal.support.checks import check_decimal, check_integer, exact_fields, shown
from shoal.support.files import unique_keys
from shoal.support.rounding import round_up, text_up
from shoal.theory.binomial import smallest_cohort

FIELDS = ("k", "h", "m", "p", "q", "f")
Odds = float | Fraction
"""A ratio of probabilities: a fraction, or the float infinity."""


@dataclass(frozen=True)
class Migration:
    """RAPPOR's parameters, and a plan that is at least as private."""

    parameters: RapporParameters
    plan: Plan
    crowd_size: int | None
    delta: str

    @cached_property
    def proven_fresh(self) -> float | None:
        """RAPPOR's proven epsilon if it drew cohorts afresh and hashed as Shoal does, rounded up.

        The proof needs texts that set the same number of bits in every cohort; with RAPPOR's
        colliding hashes they set fewer in some.
        """
        return self._proven(self.crowd_size, float(self.delta))

    @cached_property
    def proven_kept(self) -> float | None:
        """RAPPOR's proven epsilon as it runs: devices keep a cohort, which splits the crowd.

        It holds for cohorts that everybody draws uniformly, whatever sizes that gives, and where
        hashes collide (`shoal.theory.binomial`, theorem).
        """
        return self._proven(self.cohort_crowd, float(self.delta) - self.cohort_tail)

    @property
    def cohort_crowd(self) -> int | None:
        """How many reports a person's cohort has at least, but for a chance of `cohort_tail`."""
        return None if self.crowd_size is None else self._cohort(self.crowd_size)[0]

    @property
    def cohort_tail(self) -> float:
        """The chance of a smaller cohort: at most half of delta, and paid for with it."""
        return 0.0 if self.crowd_size is None else self._cohort(self.crowd_size)[1]

    def _cohort(self, crowd_size: int) -> tuple[int, float]:
        return smallest_cohort(crowd_size, self.parameters.m, float(self.delta) / 2)

    def _proven(self, crowd: int | None, delta: float) -> float | None:
        weaker = self.parameters.weaker
        if not crowd or not weaker:
            return None
        certificate = certify(self.plan.survey, q=weaker, crowd_size=crowd)
        return round_up(certificate.epsilon(delta=delta))

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats to read before trusting the numbers."""
        parameters, memory, notes = self.parameters, self.plan.memory, []
        if parameters.is_symmetric:
            notes.append("p = 1 - q: RAPPOR's channel is Shoal's, with q1 = f/2 and q2 = p.")
        else:
            notes.append(
                "p is not 1 - q: RAPPOR's channel is not symmetric, Shoal's is; the plan takes the"
                " closest symmetric one that is at least as private for a 0 and for a 1."
            )
        if not parameters.f:
            notes.append("f = 0: nothing is permanent, so reports of one person average away.")
        split = _flips(parameters)[1]
        if parameters.f and split is None:
            notes.append(
                "the instantaneous response never flips: every report of a person is the same"
                " vector, an identifier; the plan reports it once."
            )
        if min(2 * parameters.h, parameters.k) < 2 * parameters.h:
            notes.append("2h exceeds k: only k bits can differ, RAPPOR's formulas count 2h.")
        notes.append(
            "RAPPOR's devices keep their cohort, which splits the crowd; Shoal draws it afresh for"
            " each report and hashes differently, so old reports are not reports of the plan."
        )
        if self.cohort_crowd is not None and parameters.m > 1:
            notes.append(
                f"a kept cohort has {self.cohort_crowd:,} reports or more, fewer with a probability"
                f" of at most {text_up(self.cohort_tail, 3)}, which is counted in delta; hashes"
                " that collide are covered there. With fresh cohorts they are not: that number is"
                " for hashes without collisions, such as Shoal's."
            )
        if memory is not None:
            notes.append(
                "each report keeps the local epsilon of q; all of a person's reports together keep"
                " only that of q1, for each distinct answer a person ever had. Shoal's devices"
                " remember no text: the plan says what the numbers mean; to collect, give a crowd."
            )
        elif split is not None:
            notes.append(
                "with a crowd the plan has no memory: a vector that is kept belongs to one cohort"
                " and splits the crowd. All flips are fresh, so the releases of a person compose."
            )
        return tuple(notes)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON values; privacy is rounded up, null is no bound."""
        parameters, plan = self.parameters, self.plan
        memory, promise = plan.memory, check_promise(plan).promise
        crowd = None
        if self.crowd_size is not None:
            crowd = {
                "size": self.crowd_size,
                "delta": float(self.delta),
                "proven_fresh_cohorts": self.proven_fresh,
                "cohort_size": self.cohort_crowd,
                "cohort_tail": round_up(self.cohort_tail),
                "proven_kept_cohorts": self.proven_kept,
            }
        all_time = math.inf
        if memory is not None:
            all_time = plan.survey.differing_bits * log_odds(1 / memory.q1.fraction - 1)
        return {
            "parameters": parameters.to_json(),
            "symmetric": parameters.is_symmetric,
            "effective": {
                "p_star": float(parameters.p_star),
                "q_star": float(parameters.q_star),
                "set_bit_flipped": float(1 - parameters.q_star),
            },
            "rappor": {
                "epsilon_1": _up(parameters.epsilon_1),
                "epsilon_infinity": _up(parameters.epsilon_infinity),
                "local_epsilon": _up(parameters.local_epsilon),
                "all_time_epsilon": _up(parameters.all_time_epsilon),
                "between_q": [float(parameters.weaker), float(parameters.stronger)],
            },
            "crowd": crowd,
            "plan": {
                "id": plan.id,
                "q": float(plan.q),
                "q1": None if memory is None else float(memory.q1),
                "q2": None if memory is None else float(memory.q2),
                "bits": plan.bits,
                "promise": promise.kind,
                "epsilon": float(promise.epsilon),
                "delta": None if promise.delta is None else float(promise.delta),
                "local_epsilon": _up(plan.local_epsilon),
                "all_time_epsilon": _up(all_time),
            },
            "notes": list(self.notes),
        }


def migrate(
    parameters: RapporParameters,
    *,
    crowd_size: int | None = None,
    delta: object = "1e-6",
    name: str = "rappor",
    question: str = "value",
    accept_weak_promise: bool = False,
) -> Migration:
    """Return the plan that RAPPOR's parameters mean.

    Parameters
    ----------
    parameters
        RAPPOR's numbers.
    crowd_size
        How many reports are released together; without it only local promises are made.
    delta
        The delta of the proven promise.
    name, question
        Names of the plan's survey and of its text question.
    accept_weak_promise
        As in `shoal.plan`.

    >>> parameters = RapporParameters(k=128, h=2, m=16, p="0.25", q="0.75", f="0.5")
    >>> migration = migrate(parameters)
    >>> float(migration.plan.q), migration.plan.promise.epsilon
    (0.375, '2.0434')
    """
    wish = check_decimal("delta", delta, above=0, below=1)
    if crowd_size is not None:
        check_integer("crowd_size", crowd_size, lowest=1, highest=MAX_CROWD)
    text = Text(question, bits=parameters.k, hashes=parameters.h, cohorts=parameters.m)
    survey = Survey(name, (text,))
    q, memory = _flips(parameters)
    proven = {} if crowd_size is None else {"crowd_size": crowd_size, "delta": wish}
    declared: Any = {"accept_weak_promise": accept_weak_promise, **proven}
    draft = plan(survey, q=q, **declared)
    # What a device remembers belongs to one cohort, which would split the crowd.
    if crowd_size is None:
        draft = replace(draft, memory=memory)
    return Migration(parameters, draft, crowd_size, wish)


def _flips(parameters: RapporParameters) -> tuple[FlipProbability, Memory | None]:
    """Return Shoal's flip probability, rounded up, and how memory splits it."""
    permanent, instantaneous = parameters.f / 2, flip_of(min(odds_of(parameters.p, parameters.q)))
    if not permanent and not instantaneous:
        raise InputError("with f=0, p=0 and q=1 reports are not randomized; no plan does that.")
    if not permanent or not instantaneous:
        return FlipProbability.at_least(permanent or instantaneous), None
    flips = FlipProbability.at_least(permanent), FlipProbability.at_least(instantaneous)
    if sum(flip.digits for flip in flips) > MAX_DIGITS:
        raise InputError(
            f"f/2={float(permanent):g} and q2={float(instantaneous):g} are too close to 0 or 1/2"
            " to be drawn exactly; round them."
        )
    memory = Memory(*flips)
    return memory.q, memory


def _up(value: float) -> float | None:
    return None if math.isinf(value) else round_up(value)


@dataclass(frozen=True)
class RapporParameters:
    """RAPPOR's six numbers, by RAPPOR's letters.

    k bits, h hashes, m cohorts; f of the permanent response, p and q of the instantaneous one.
    Probabilities are kept as the exact decimals that were written.

    >>> given = RapporParameters(k=16, h=2, m=64, p="0.5", q="0.75", f="0.5")
    >>> float(given.p_star), float(given.q_star), round(given.epsilon_1, 3)
    (0.5625, 0.6875, 1.074)
    >>> given.epsilon_infinity == 4 * math.log(3)
    True
    """

    k: int
    h: int
    m: int
    p: Fraction
    q: Fraction
    f: Fraction

    def __init__(self, k: object, h: object, m: object, p: object, q: object, f: object) -> None:
        for name, value, highest in (("k", k, 65_536), ("h", h, 8), ("m", m, 65_535)):
            whole = check_integer(f"RAPPOR's {name}", value, lowest=1, highest=highest)
            object.__setattr__(self, name, whole)
        for name, chance in (("p", p), ("q", q), ("f", f)):
            object.__setattr__(self, name, _probability(name, chance))
        if self.h > self.k:
            raise InputError(f"RAPPOR's h={self.h} hashes do not fit into k={self.k} bits.")
        if self.p >= self.q:
            raise InputError(
                f"RAPPOR's p must be below its q, got p={float(self.p):g} and q={float(self.q):g};"
                " p is how often a clear bit is reported as 1, q how often a set one is."
            )
        if self.f == 1:
            raise InputError("with f=1 reports carry no information: every bit is a coin toss.")

    @classmethod
    def read(cls, path: Path | str) -> RapporParameters:
        """Read a params.csv with the header k,h,m,p,q,f, or a JSON object with these keys."""
        file = Path(path)
        try:
            text = file.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise InputError(f"cannot read RAPPOR's parameters {file}: {reason}.") from error
        fields = _from_json(text, file) if file.suffix == ".json" else _from_csv(text, file)
        whole = {name: _integer(name, fields[name]) for name in ("k", "h", "m")}
        return cls(**whole, **{name: fields[name] for name in ("p", "q", "f")})

    @property
    def p_star(self) -> Fraction:
        """The rate at which a true 0 is reported as 1 (RAPPOR, Lemma 1)."""
        return self.f / 2 * (self.p + self.q) + (1 - self.f) * self.p

    @property
    def q_star(self) -> Fraction:
        """The rate at which a true 1 is reported as 1 (RAPPOR, Lemma 1)."""
        return self.f / 2 * (self.p + self.q) + (1 - self.f) * self.q

    @property
    def odds(self) -> tuple[Odds, Odds]:
        """How much likelier the truth makes a reported 1, and a reported 0: A and B."""
        return odds_of(self.p_star, self.q_star)

    @property
    def is_symmetric(self) -> bool:
        """Whether a 0 is as often reported wrongly as a 1: Shoal's channel."""
        return self.p + self.q == 1

    @property
    def epsilon_1(self) -> float:
        """RAPPOR's bound for one report: h ln(q*(1 - p*) / (p*(1 - q*))) (RAPPOR, Theorem 2)."""
        return self.h * sum(log_odds(odds) for odds in self.odds)

    @property
    def epsilon_infinity(self) -> float:
        """RAPPOR's bound for all reports of a value: 2h ln((1 - f/2) / (f/2)) (RAPPOR, Thm 1)."""
        return 2 * self.h * self._permanent

    @property
    def local_epsilon(self) -> float:
        """The exact bound for one report: at most h bits change each way, at most k in all."""
        first, second = (log_odds(odds) for odds in self.odds)
        rest = min(self.h, self.k - self.h)
        return self.h * max(first, second) + rest * min(first, second)

    @property
    def all_time_epsilon(self) -> float:
        """The exact bound for all reports of a value, min(2h, k) ln((1 - f/2) / (f/2))."""
        return min(2 * self.h, self.k) * self._permanent

    @property
    def weaker(self) -> Fraction:
        """t: the largest flip probability whose reports can be turned into RAPPOR's."""
        return flip_of(max(self.odds))

    @property
    def stronger(self) -> Fraction:
        """s: the smallest flip probability into which RAPPOR's reports can be turned."""
        return flip_of(min(self.odds))

    @property
    def _permanent(self) -> float:
        return log_odds((2 - self.f) / self.f) if self.f else math.inf

    def to_json(self) -> dict[str, Any]:
        return {n: float(v) if isinstance(v := getattr(self, n), Fraction) else v for n in FIELDS}


def odds_of(p: Fraction, q: Fraction) -> tuple[Odds, Odds]:
    return q / p if p else math.inf, (1 - p) / (1 - q) if q < 1 else math.inf


def flip_of(odds: Odds) -> Fraction:
    return 1 / (1 + odds) if isinstance(odds, Fraction) else Fraction(0)


def log_odds(odds: Odds) -> float:
    if isinstance(odds, float):
        return math.inf
    return math.log(odds.numerator) - math.log(odds.denominator)


def _probability(name: str, value: object) -> Fraction:
    if isinstance(value, Fraction):
        number, text = value, str(value)
    else:
        try:
            zero = Decimal(str(value)) == 0 and not isinstance(value, bool)
        except ArithmeticError:
            zero = False
        written = "0" if zero else check_decimal(f"RAPPOR's {name}", value, above=0)
        number, text = Fraction(written), repr(value)
    if not 0 <= number <= 1:
        raise InputError(f"RAPPOR's {name} must be between 0 and 1, got {name}={text[:80]}.")
    return number


def _integer(name: str, value: object) -> object:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value[:20])
    if isinstance(value, str):
        raise InputError(f"RAPPOR's {name} must be a whole number, got {name}={shown(value)}.")
    return value


def _from_csv(text: str, file: Path) -> Mapping[str, Any]:
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise InputError(f"{file} is not CSV: {error}.") from error
    if len(rows) != 2 or sorted(rows[0]) != sorted(FIELDS) or len(rows[1]) != len(FIELDS):
        raise InputError(
            f"{file} must hold the header k,h,m,p,q,f and one row of numbers, as RAPPOR's"
            " params.csv does."
        )
    return dict(zip(rows[0], rows[1], strict=True))


def _from_json(text: str, file: Path) -> Mapping[str, Any]:
    try:
        # Numbers stay the digits that were written.
        document = json.loads(text, parse_float=Decimal, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {error or 'nested too deeply'}.") from error
    return exact_fields(str(file), document, set(FIELDS))
