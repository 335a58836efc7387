"""What a device has given away: counts for each plan, and what they cost.

`shoal.memory.revealing` has the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from shoal._check import check_decimal_text, check_integer
from shoal.errors import InputError
from shoal.lies import LieProbability
from shoal.memory.revealing import changing_epsilon, local_epsilon, repeated_epsilon
from shoal.plans import Memory, Plan

__all__ = ["Account", "PlanAccount"]

VERSION = 1


@dataclass(frozen=True)
class PlanAccount:
    """What was sent under one plan."""

    plan_id: str
    survey: str
    bits: int
    differing_bits: int
    q: LieProbability
    memory: Memory | None
    reports: int = 0
    answers: Mapping[str, int] = field(default_factory=dict)

    @property
    def distinct_answers(self) -> int | None:
        """How many permanent vectors stand behind the reports; unknown where there is no memory."""
        return len(self.answers) if self.memory else None

    @property
    def epsilon(self) -> Decimal:
        """What the reports say about what was answered."""
        if self.memory is None:
            return self.reports * local_epsilon(self.differing_bits, self.q)
        return sum(
            (repeated_epsilon(self.differing_bits, self.memory, n) for n in self.answers.values()),
            Decimal(0),
        )

    @property
    def epsilon_of_changes(self) -> Decimal:
        """What they say about what was answered and when that changed; at most."""
        if self.memory is None:
            return self.epsilon
        return changing_epsilon(self.differing_bits, self.bits, self.memory, self.reports)

    def after(self, answer: str | None) -> PlanAccount:
        """Return the account with one more report."""
        answers = dict(self.answers)
        if self.memory is not None and answer is not None:
            answers[answer] = answers.get(answer, 0) + 1
        return replace(self, reports=self.reports + 1, answers=answers)

    def to_json(self) -> dict[str, Any]:
        """Return the account as plain JSON values, digests left out."""
        return {
            "plan": self.plan_id,
            "survey": self.survey,
            "reports": self.reports,
            "distinct_answers": self.distinct_answers,
            "memory": self.memory is not None,
            "epsilon": str(self.epsilon),
            "epsilon_of_changes": str(self.epsilon_of_changes),
        }


@dataclass(frozen=True)
class Account:
    """What a device has given away so far; epsilons are decimals, rounded up, and add."""

    plans: tuple[PlanAccount, ...] = ()
    limit: str | None = None
    pending: tuple[str, ...] = ()

    @property
    def epsilon(self) -> Decimal:
        """What all reports say about what was answered."""
        return sum((account.epsilon for account in self.plans), Decimal(0))

    @property
    def epsilon_of_changes(self) -> Decimal:
        """What all reports say about what was answered and when that changed; at most."""
        return sum((account.epsilon_of_changes for account in self.plans), Decimal(0))

    @property
    def left(self) -> Decimal | None:
        """What may still be given away under the person's limit; None where there is none."""
        return None if self.limit is None else max(Decimal(self.limit) - self.epsilon, Decimal(0))

    def of(self, plan: Plan) -> PlanAccount:
        """Return the account of one plan."""
        for account in self.plans:
            if account.plan_id == plan.id:
                return account
        survey = plan.survey
        return PlanAccount(
            plan.id, survey.name, plan.bits, survey.differing_bits, plan.q, plan.memory
        )

    def to_json(self) -> dict[str, Any]:
        """Return the account as plain JSON values."""
        return {
            "plans": [account.to_json() for account in self.plans],
            "epsilon": str(self.epsilon),
            "epsilon_of_changes": str(self.epsilon_of_changes),
            "limit": self.limit,
            "left": None if self.left is None else str(self.left),
        }


def account_to_json(account: Account) -> dict[str, Any]:
    """Return the account as it is stored, digests included."""
    return {
        "version": VERSION,
        "limit": account.limit,
        "pending": list(account.pending),
        "plans": {one.plan_id: _plain(one) for one in account.plans},
    }


def _plain(account: PlanAccount) -> dict[str, Any]:
    return {
        "survey": account.survey,
        "bits": account.bits,
        "differing_bits": account.differing_bits,
        "q": account.q.to_json(),
        "memory": account.memory.to_json() if account.memory else None,
        "reports": account.reports,
        "answers": dict(account.answers),
    }


def account_from_json(document: object, path: Path) -> Account:
    """Read what `account_to_json` gave; anything else is an error, never an empty account."""
    try:
        if not isinstance(document, dict) or document["version"] != VERSION:
            raise ValueError("another version")
        limit = document["limit"]
        if limit is not None:
            check_decimal_text("limit", limit, above=0)
        pending = document["pending"]
        if not isinstance(pending, list) or not all(isinstance(name, str) for name in pending):
            raise TypeError("pending")
        plans = tuple(_plan_account(name, kept) for name, kept in document["plans"].items())
        return Account(plans, limit, tuple(pending))
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise InputError(
            f"{path} is not a ledger that this Shoal reads; it was not touched."
        ) from problem


def _plan_account(plan_id: str, kept: dict[str, Any]) -> PlanAccount:
    memory = kept["memory"]
    if memory is not None:
        memory = Memory(LieProbability(*memory["q1"]), LieProbability(*memory["q2"]))
    answers = {
        name: check_integer("reports", count, lowest=1) for name, count in kept["answers"].items()
    }
    reports = check_integer("reports", kept["reports"], lowest=0)
    if memory is not None and sum(answers.values()) != reports:
        raise ValueError("counts do not add up")
    return PlanAccount(
        plan_id,
        str(kept["survey"]),
        check_integer("bits", kept["bits"], lowest=1),
        check_integer("differing_bits", kept["differing_bits"], lowest=0),
        LieProbability(*kept["q"]),
        memory,
        reports,
        answers,
    )
