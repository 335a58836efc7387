"""What the view of a plan lets a tally hold.

A plan with view `counts` promises that nobody sees more than how many reports set each bit, in each
cohort if there are cohorts. Its noise is far too small for anything that links the bits of one
report: counts by number of set bits, whole vectors, and joint counts are refused wherever a plan
and a tally meet. A cross in the survey is how to count answers jointly: its cells are bits of
their own, and the plan's noise allows for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.errors import PrivacyRefusal, TallyError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Cross, Flags, Survey, YesNo

if TYPE_CHECKING:
    from shoal.analysis.tally import Tally

__all__ = ["check_links", "check_view", "way_to_cross"]

_MORE = (
    "the plan's view is counts: a tally holds how many reports set each bit and nothing that links"
    " the bits of one report"
)


def check_view(plan: Plan, tally: Tally) -> None:
    """Refuse a tally that holds more than its plan lets anybody see, or less."""
    if plan.view == tally.view:
        return
    if plan.view == "counts":
        raise PrivacyRefusal(f"{_MORE}, but this one counts set bits; count its reports again.")
    raise TallyError(
        "the plan's view is reports, but the tally holds only the counts of single bits; count the"
        " reports again."
    )


def check_links(plan: Plan, what: str, bits: Iterable[int] = ()) -> None:
    """Refuse, under a plan with view counts, `what` links bits of one report.

    The bits, if they are known, say which cross would allow it.
    """
    if plan.view == "counts":
        raise PrivacyRefusal(f"{_MORE}, so it has no {what}; {way_to_cross(plan.survey, bits)}")


def way_to_cross(survey: Survey, bits: Iterable[int] = ()) -> str:
    """Say which cross counts these bits jointly, or that none does.

    >>> from shoal import Choice, Flags, Text
    >>> survey = Survey("s", (Choice("age", ("young", "old")), Flags("has", ("car", "cat"))))
    >>> way_to_cross(survey, [0, 3])
    'cross the questions in the plan: --cross "age;has=cat".'
    """
    labels = survey.labels
    names: dict[str, None] = {}
    for bit in bits:
        name, label = labels[bit]
        question = survey[name]
        if isinstance(question, Cross):
            names |= dict.fromkeys(side.name for side in question.sides)
        elif question.takes_one or isinstance(question, YesNo):
            names[name] = None
        elif question.kind == Flags.kind:
            names[f"{name}={label}"] = None
        else:
            return f"question {name!r} is {question.kind}, which cannot be crossed either."
    for cross in survey.crosses:
        if len(names) > 1 and set(names) <= {side.name for side in cross.sides}:
            return f"cross {cross.name!r} has what you want: shoal associate, shoal.cross_table."
    if len(names) < 2:
        return 'cross the questions that you want jointly in the plan: --cross "A;B".'
    return f'cross the questions in the plan: --cross "{";".join(names)}".'
