"""The device's account of the privacy loss of its reports, kept for its owner.

It counts the local epsilon: what the reports reveal about the answers to an observer who sees all
of them and knows who sent them. Without memory reports add up. With memory all reports of one
answer together never cost more than the local epsilon of q1, whatever their plans, and distinct
permanent vectors add up: that is the price of *what* was answered, and the person's limit is on it.
An upper bound on the price of *when* it changed is shown next to it
(`shoal.protocol.flip_probability`).

The file holds counts under keyed digests, no answers.
"""

from __future__ import annotations

import decimal
import hashlib
import json
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from shoal.errors import InputError, PrivacyRefusal
from shoal.protocol.flip_probability import (
    FlipProbability,
    changing_epsilon,
    local_epsilon,
    vector_epsilon,
)
from shoal.protocol.plan import Memory, Plan
from shoal.protocol.wording import permanent_key
from shoal.support.checks import check_decimal, check_decimal_text, check_integer, check_number
from shoal.support.disk import Disk, SharedFile
from shoal.support.files import read_json


class Ledger:
    """The file that holds a device's account.

    Parameters
    ----------
    path
        The file; it is made by the first charge.
    timeout
        Seconds to wait while another process uses it.
    disk
        The file system; tests pass their own.

    Examples
    --------
    >>> import tempfile
    >>> from shoal import Flags, Survey
    >>> from shoal.protocol.flip_probability import FlipProbability
    >>> from shoal.protocol.plan import Promise
    >>> plan = Plan(Survey("browser", (Flags("features", ("sync", "vpn")),)),
    ...             FlipProbability(1, 2), Promise("local", "2.2"))
    >>> ledger = Ledger(tempfile.mkdtemp() + "/ledger.json")
    >>> ledger.set_limit("5")
    >>> ledger.charge(plan), ledger.charge(plan)
    (Decimal('2.197225'), Decimal('2.197225'))
    >>> ledger.charge(plan)
    Traceback (most recent call last):
    ...
    shoal.errors.PrivacyRefusal: ... raise it to 6.591675, above the limit 5; nothing was sent.
    >>> ledger.read().epsilon
    Decimal('4.394450')
    """

    def __init__(
        self, path: pathlib.Path | str, *, timeout: float = 10.0, disk: Disk | None = None
    ) -> None:
        self._file = SharedFile(path, "ledger", check_number("timeout", timeout), disk)

    @property
    def path(self) -> pathlib.Path:
        """Where the account is kept."""
        return self._file.path

    def read(self) -> Account:
        """Return the account; without a file it is empty."""
        if self._file.read() is None:
            return Account()
        return _account_of(read_json(self.path, "ledger", InputError), self.path)

    def charge(
        self, plan: Plan, answer_digest: str | bytes | None = None, *, token: str | None = None
    ) -> decimal.Decimal:
        """Charge one report before it is randomized; return the epsilon that it adds.

        Raises `PrivacyRefusal`, and counts nothing, if the total would pass the person's limit.
        When this returns, the charge is on the disk. A report that is then not sent stays counted.

        Parameters
        ----------
        plan
            The plan of the report.
        answer_digest
            With memory, `DeviceMemory.digest` of the answer; without, it is not used.
        token
            The caller's name for the one report that this charge is for. After a crash, charging
            again with the same token costs nothing; `settle` ends that when the report is stored.
        """
        answer = _digest(answer_digest)
        if plan.memory is not None and answer is None:
            raise InputError("a plan with memory is charged with the answer's digest.")
        with self._changing() as account:
            # Bound to plan and answer: the same token for another answer is another report.
            name = None if token is None else _pending_name(token, plan.id, answer)
            if name in account.pending:
                return decimal.Decimal(0)
            after = account.of(plan).after(answer)
            if (most := after.most_reports) is not None and account.made(plan) >= most:
                raise PrivacyRefusal(
                    f"a device answers the survey {plan.survey.name!r} {most} times at most, and"
                    " this one has; nothing was sent."
                    if most > 1
                    else f"a device answers the survey {plan.survey.name!r} once, and this one"
                    " has; nothing was sent."
                )
            others = tuple(one for one in account.plans if one.plan_id != plan.id)
            pending = account.pending if name is None else (*account.pending, name)
            changed = replace(account, plans=(*others, after), pending=pending)
            if account.limit is not None and changed.epsilon > decimal.Decimal(account.limit):
                raise PrivacyRefusal(
                    f"this device has revealed epsilon {account.epsilon}; one more report of plan"
                    f" {plan.id[:12]} would raise it to {changed.epsilon}, above the limit"
                    f" {account.limit}; nothing was sent."
                )
            self._write(changed)
            return changed.epsilon - account.epsilon

    def settle(self, token: str) -> None:
        """Forget a charge's token: its report is stored and will never be made again."""
        start = _pending_name(token)
        if not any(name.startswith(start) for name in self.read().pending):
            return
        with self._changing() as account:
            rest = tuple(name for name in account.pending if not name.startswith(start))
            self._write(replace(account, pending=rest))

    def set_limit(self, limit: object) -> None:
        """Set the person's limit on the total epsilon, a decimal above 0; None takes it away.

        A limit below the present epsilon is kept: nothing more is sent then.
        """
        text = None if limit is None else check_decimal("limit", limit, above=0)
        with self._changing() as account:
            self._write(replace(account, limit=text))

    @contextmanager
    def _changing(self) -> Iterator[Account]:
        with self._file.changing():
            yield self.read()

    def _write(self, account: Account) -> None:
        document = {
            "version": VERSION,
            "limit": account.limit,
            "pending": account.pending,
            "plans": {one.plan_id: one.stored() for one in account.plans},
        }
        self._file.write((json.dumps(document, indent=1) + "\n").encode())


def _digest(value: str | bytes | None) -> str | None:
    text = value.hex() if isinstance(value, bytes) else value
    return None if text is None else _check_length("an answer's digest", text)


def _check_length(what: str, text: object) -> str:
    if not isinstance(text, str) or not 16 <= len(text) <= 128:
        raise InputError(f"{what} is a text of 16 to 128 characters.")
    return text


def _pending_name(token: str, plan_id: str = "", answer: str | None = None) -> str:
    """Return the name of a charge that waits for its report; by the token alone, its start."""
    name = _check_length("a charge's token", token).encode("utf-8", "surrogatepass")
    start = hashlib.sha256(name).hexdigest()[:32] + "."
    if not plan_id:
        return start
    return start + hashlib.sha256(f"{plan_id}.{answer or ''}".encode()).hexdigest()[:32]


VERSION = 1


@dataclass(frozen=True)
class PlanAccount:
    """The reports of one plan."""

    plan_id: str
    survey: str
    bits: int
    differing_bits: int
    q: FlipProbability
    memory: Memory | None
    permanent_key: str | None
    most_reports: int | None = None
    reports: int = 0
    answers: dict[str, int] = field(default_factory=dict)

    @property
    def distinct_answers(self) -> int | None:
        """How many permanent vectors the reports come from; None without memory."""
        return len(self.answers) if self.memory else None

    @property
    def epsilon(self) -> decimal.Decimal:
        """The epsilon of the reports of this plan alone, about the answers."""
        return Account((self,)).epsilon

    @property
    def epsilon_of_changes(self) -> decimal.Decimal:
        """An upper bound on what they reveal about the answers and when these changed."""
        return Account((self,)).epsilon_of_changes

    def after(self, answer: str | None) -> PlanAccount:
        answers = dict(self.answers)
        if self.memory is not None and answer is not None:
            answers[answer] = answers.get(answer, 0) + 1
        return replace(self, reports=self.reports + 1, answers=answers)

    def stored(self) -> dict[str, Any]:
        """Return what the file holds of the account, digests included."""
        return {
            "survey": self.survey,
            "bits": self.bits,
            "differing_bits": self.differing_bits,
            "q": self.q.to_json(),
            "memory": self.memory.to_json() if self.memory else None,
            "permanent_key": self.permanent_key,
            "most_reports": self.most_reports,
            "reports": self.reports,
            "answers": self.answers,
        }

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
    """The privacy loss of a device so far; epsilons are decimals, rounded up, and add."""

    plans: tuple[PlanAccount, ...] = ()
    limit: str | None = None
    pending: tuple[str, ...] = ()

    @property
    def epsilon(self) -> decimal.Decimal:
        """The epsilon of all reports about the answers; each permanent vector counts once."""
        total = self._fresh
        vectors: dict[tuple[Any, ...], list[tuple[FlipProbability, int]]] = {}
        for one, memory in self._remembering:
            for name, reports in one.answers.items():
                shared = (one.permanent_key, name, one.differing_bits, memory.q1)
                vectors.setdefault(shared, []).append((memory.q2, reports))
        for (_, _, differing_bits, q1), uses in vectors.items():
            total += vector_epsilon(differing_bits, q1, uses)
        return total

    @property
    def epsilon_of_changes(self) -> decimal.Decimal:
        """An upper bound on what all reports reveal about the answers and when these changed.

        Plans that share permanent vectors are one series of reports: `changing_epsilon` holds in
        whichever order they are taken, and the largest of its values is returned.
        """
        total = self._fresh
        series: dict[str | None, list[tuple[decimal.Decimal, decimal.Decimal]]] = {}
        for one, memory in self._remembering:
            first = changing_epsilon(one.differing_bits, one.bits, memory, one.reports)
            later = one.reports * local_epsilon(one.bits, memory.q2)
            series.setdefault(one.permanent_key, []).append((first, later))
        for prices in series.values():
            total += sum(later for _, later in prices)
            total += max(first - later for first, later in prices)
        return total

    @property
    def _fresh(self) -> decimal.Decimal:
        """The epsilon of reports without memory."""
        fresh = (one for one in self.plans if one.memory is None)
        prices = (one.reports * local_epsilon(one.differing_bits, one.q) for one in fresh)
        return sum(prices, decimal.Decimal(0))

    @property
    def _remembering(self) -> Iterator[tuple[PlanAccount, Memory]]:
        for one in self.plans:
            if one.memory is not None and one.reports:
                yield one, one.memory

    @property
    def left(self) -> decimal.Decimal | None:
        """The epsilon left under the person's limit; None without a limit."""
        if self.limit is None:
            return None
        return max(decimal.Decimal(self.limit) - self.epsilon, decimal.Decimal(0))

    def of(self, plan: Plan) -> PlanAccount:
        """Return the account of one plan."""
        for account in self.plans:
            if account.plan_id == plan.id:
                return account
        survey, key = plan.survey, permanent_key(plan)
        bits = plan.bits, survey.differing_bits
        most = None if survey.reports_per_device is None else plan.reports_per_device
        return PlanAccount(plan.id, survey.name, *bits, plan.q, plan.memory, key, most)

    def made(self, plan: Plan) -> int:
        """Return how often the device answered a survey about its past, in all plans for it."""
        name = plan.survey.name
        same = (one for one in self.plans if one.survey == name and one.most_reports is not None)
        return sum(one.reports for one in same)

    def to_json(self) -> dict[str, Any]:
        """Return the account as plain JSON values."""
        return {
            "plans": [account.to_json() for account in self.plans],
            "epsilon": str(self.epsilon),
            "epsilon_of_changes": str(self.epsilon_of_changes),
            "limit": self.limit,
            "left": None if self.left is None else str(self.left),
        }


def _account_of(document: object, path: pathlib.Path) -> Account:
    """Read a stored account; anything else is an error, never an empty account."""
    try:
        if not isinstance(document, dict) or document["version"] != VERSION:
            raise ValueError("another version")
        limit = document["limit"]
        if limit is not None:
            check_decimal_text("limit", limit, above=0)
        pending = document["pending"]
        if not isinstance(pending, list) or not all(isinstance(name, str) for name in pending):
            raise TypeError("pending")
        plans = tuple(_plan_account(name, entry) for name, entry in document["plans"].items())
        return Account(plans, limit, tuple(pending))
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise InputError(
            f"{path} is not a ledger that this Shoal reads; it was not touched."
        ) from problem


def _plan_account(plan_id: str, entry: dict[str, Any]) -> PlanAccount:
    memory, key = entry["memory"], entry["permanent_key"]
    if memory is not None:
        memory = Memory(FlipProbability(*memory["q1"]), FlipProbability(*memory["q2"]))
    if (key is None) != (memory is None) or not isinstance(key, (str, type(None))):
        raise ValueError("permanent flips without memory, or memory without them")
    answers = entry["answers"]
    for count in answers.values():
        check_integer("reports", count, lowest=1)
    if entry["most_reports"] is not None:
        check_integer("most_reports", entry["most_reports"], lowest=1)
    for name, lowest in (("reports", 0), ("bits", 1), ("differing_bits", 0)):
        check_integer(name, entry[name], lowest=lowest)
    if memory is not None and sum(answers.values()) != entry["reports"]:
        raise ValueError("counts do not add up")
    read = {"survey": str(entry["survey"]), "q": FlipProbability(*entry["q"]), "memory": memory}
    return PlanAccount(plan_id, **entry | read)
