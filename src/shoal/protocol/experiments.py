"""Questions that a device answers from its own past: arms, retention and funnels.

Each is a choice, or flags, for encoding, flipping, tallying and estimating. They differ in where
the answer comes from, and in how many reports a device ever makes (`Survey.reports_per_device`):

=============== ============================== ============ =================================
kind            a device answers               as           reports of a device, in all
=============== ============================== ============ =================================
arm             the arm it drew, once          a choice     1
retention, age  periods since its first one    a choice     one in each of periods 0 ... P
retention, once the later periods of activity  flags        1, when the last period is over
funnel          the furthest step it reached   a choice     1
=============== ============================== ============ =================================

With ages an arm and a funnel are part of each of the P + 1 reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from shoal.errors import InputError, SurveyError
from shoal.protocol.questions import Choice, Flags, checked_sequence
from shoal.support.checks import check_integer, seconds, shown

MAX_WEIGHT = 10_000
"""The largest weight of an arm."""

MAX_PERIODS = 400
"""The most periods of a retention question."""

_HIDDEN = dict.fromkeys(("options", "fold", "other", "at_most"))
"""Fields of choices and flags that these kinds do not declare, or declare under another name."""

_WORDS = {"column": None, "title": None, "text": None, "titles": ()}
"""What every kind takes beside its own arguments, as other questions do."""


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Arm(Choice):
    """The arm of an experiment that a device draws once and keeps; the first is control.

    `weights` are whole numbers, by default all the same.

    >>> onboarding = Arm("onboarding", ("control", "tour", "video"), weights=(2, 1, 1))
    >>> onboarding.labels, onboarding.control, onboarding.shares[0]
    (('control', 'tour', 'video'), 'control', 0.5)
    """

    weights: tuple[int, ...] = ()
    kind: ClassVar[str] = "arm"
    json_names = _HIDDEN | {"options": "arms"}

    def __init__(
        self,
        name: str,
        arms: Sequence[str],
        weights: Sequence[int] = (),
        missing: Literal["option"] | None = None,
        **words: Any,
    ) -> None:
        _declare(self, words, name=name, options=arms, weights=weights, missing=missing)
        of = f"of question {self.name!r}"
        if len(self.options) < 2:
            raise SurveyError(f"question {self.name!r} needs at least two arms.")
        checked = tuple(
            check_integer(f"a weight {of}", one, lowest=1, highest=MAX_WEIGHT, error=SurveyError)
            for one in checked_sequence(f"weights {of}", weights)
        )
        if checked and len(checked) != len(self.options):
            raise SurveyError(
                f"weights {of} are one for each of its {len(self.options)} arms, got"
                f" {len(checked)}."
            )
        vars(self)["weights"] = () if len(set(checked)) == 1 else checked

    @property
    def control(self) -> str:
        """The arm of devices that draw none."""
        return self.options[0]

    @property
    def drawn_weights(self) -> tuple[int, ...]:
        """The weight of each arm; all 1 if none are declared."""
        return self.weights or (1,) * len(self.options)

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of devices that draws each arm."""
        total = sum(self.drawn_weights)
        return tuple(weight / total for weight in self.drawn_weights)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Funnel(Choice):
    """The furthest step that a device has reached; who reached a step reached those before it.

    A device that reached none gives no answer: with `missing="option"` it is counted as such.

    >>> Funnel("setup", ("installed", "signed in", "invited")).labels
    ('installed', 'signed in', 'invited')
    """

    kind: ClassVar[str] = "funnel"
    json_names = _HIDDEN | {"options": "steps"}

    def __init__(
        self,
        name: str,
        steps: Sequence[str],
        missing: Literal["option"] | None = None,
        **words: Any,
    ) -> None:
        _declare(self, words, name=name, options=steps, missing=missing)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Retention(Choice):
    """The device's age in periods, 0 to P, reported in each period in which it is active.

    Age 0 is the first period in which it is active. A device older than P gives no answer; without
    `missing="option"` it makes no report any more. A `period` is in seconds, or text such as "1w".

    >>> Retention("weeks", periods=4, period="1w").labels
    ('0', '1', '2', '3', '4')
    """

    periods: int = field(kw_only=True)
    period: int = field(kw_only=True)
    design: Literal["age"] = field(default="age", kw_only=True)
    kind: ClassVar[str] = "retention"
    json_names = _HIDDEN

    def __init__(
        self,
        name: str,
        periods: int,
        period: int | str,
        missing: Literal["option"] | None = None,
        *,
        design: str = "age",
        **words: Any,
    ) -> None:
        spans = _check_periods(name, periods, period, design, "age")
        ages = [str(age) for age in range(spans["periods"] + 1)]
        _declare(self, words, name=name, options=ages, missing=missing, **spans)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class RetentionOnce(Flags):
    """The periods 1 to P after its first one in which a device was active, reported once.

    Only for devices that run without their user, such as daemons: others report only if they stay.

    >>> RetentionOnce("weeks", periods=3, period="1w").labels
    ('1', '2', '3')
    """

    periods: int = field(kw_only=True)
    period: int = field(kw_only=True)
    design: Literal["once"] = field(default="once", kw_only=True)
    kind: ClassVar[str] = "retention"
    json_names = _HIDDEN

    def __init__(
        self,
        name: str,
        periods: int,
        period: int | str,
        *,
        design: str = "once",
        **words: Any,
    ) -> None:
        spans = _check_periods(name, periods, period, design, "once")
        later = [str(number) for number in range(1, spans["periods"] + 1)]
        _declare(self, words, name=name, options=later, at_most=None, **spans)


def _declare(question: Choice | Flags, words: Mapping[str, object], **values: object) -> None:
    if unknown := words.keys() - _WORDS.keys():
        raise TypeError(f"{type(question).__name__} takes no argument {min(unknown)!r}.")
    vars(question).update(_WORDS, **words, **values, fold=False, other=False)
    question.__post_init__()


def _check_periods(
    name: str, periods: object, period: object, design: object, wanted: str
) -> dict[str, Any]:
    of = f"of question {shown(name)}"
    if design != wanted:
        raise SurveyError(f"design {of} must be 'age' or 'once', got {shown(design)}.")
    count = check_integer(
        f"periods {of}", periods, lowest=1, highest=MAX_PERIODS, error=SurveyError
    )
    try:
        length = seconds(period) if isinstance(period, str) else period
    except InputError as error:
        raise SurveyError(f"period {of}: {error}") from error
    checked = check_integer(f"period {of}", length, lowest=3600, highest=10**9, error=SurveyError)
    return {"periods": count, "period": checked, "design": design}
