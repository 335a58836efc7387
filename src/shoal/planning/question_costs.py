"""What each question of a survey costs: how much less noise all counts would have without it.

Every question makes two people's answers differ in more bits, and so all bits need more flips. The
cost of a question is found by leaving it out, with every cross that it is a side of: the promise
and the crowd stay the same, and what is left is the smaller sigma of every other count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.planning.plan import plan
from shoal.protocol.survey import Question, Survey
from shoal.theory.randomized_response import count_sigma

__all__ = ["QuestionCost", "SurveyCosts", "survey_costs"]


@dataclass(frozen=True)
class QuestionCost:
    """One question: its bits, and q and sigma of the others if it were not asked.

    They are None for the only question of a survey.
    """

    question: Question
    q_without: float | None
    sigma_without: float | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": self.question.name,
            "kind": self.question.kind,
            "bits": self.question.bits,
            "differing_bits": self.question.differing_bits,
            "q_without": self.q_without,
            "sigma_without": self.sigma_without,
        }


@dataclass(frozen=True)
class SurveyCosts:
    """The noise of a survey, and what each of its questions adds to it."""

    survey: Survey
    crowd_size: int
    q: float
    sigma: float
    questions: tuple[QuestionCost, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "survey": self.survey.name,
            "bits": self.survey.bits,
            "differing_bits": self.survey.differing_bits,
            "crowd_size": self.crowd_size,
            "q": self.q,
            "sigma": self.sigma,
            "questions": [one.to_json() for one in self.questions],
        }


def survey_costs(
    survey: Survey, *, crowd_size: int, epsilon: object, delta: object, view: Any = "reports"
) -> SurveyCosts:
    """Return what each question adds to the noise of all counts, for one promise and one crowd.

    >>> from shoal import Choice, YesNo
    >>> asked = Survey("people", (YesNo("smokes"), Choice("city", ("Rome", "Oslo", "Bern"))))
    >>> costs = survey_costs(asked, crowd_size=5_000, epsilon=1, delta="1e-6", view="counts")
    >>> [round(one.sigma_without / costs.sigma, 2) for one in costs.questions]
    [0.86, 0.71]
    """

    def noise(asked: Survey) -> tuple[float, float]:
        agreed = plan(asked, crowd_size=crowd_size, epsilon=epsilon, delta=delta, view=view)
        return float(agreed.q), count_sigma(crowd_size, float(agreed.q))

    q, sigma = noise(survey)
    costs = []
    for question in survey:
        left = _without(survey, question)
        q_left, sigma_left = (None, None) if left is None else noise(left)
        costs.append(QuestionCost(question, q_left, sigma_left))
    return SurveyCosts(survey, crowd_size, q, sigma, tuple(costs))


def _without(survey: Survey, left_out: Question) -> Survey | None:
    """Return the survey without a question and what is derived from it; None if nothing is left."""
    crosses = [
        cross
        for cross in survey.crosses
        if cross is not left_out and all(side.question != left_out for side in cross.sides)
    ]
    asked = [question for question in survey.asked if question is not left_out]
    return Survey(survey.name, (*asked, *crosses)) if asked else None
