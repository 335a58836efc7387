"""An answer to the bytes that are sent: charged first, then randomized once."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

from shoal.device.encode import encode
from shoal.device.outbox.queue import Folder
from shoal.device.packing import pack_reports
from shoal.device.randomize import flip
from shoal.device.vectors import OriginalVector, SyntheticVector
from shoal.errors import ShoalError
from shoal.protocol.plan import Plan

__all__ = ["Charging", "Remembering", "ReportMaker"]


class Remembering(Protocol):
    """Permanent flips, as `shoal.device.memory.DeviceMemory` keeps them."""

    def report(
        self, plan: Plan, original: OriginalVector, *, ledger: Any = None, token: str | None = None
    ) -> SyntheticVector:
        """Return the vector to send; with a ledger, charge it first."""


class Charging(Protocol):
    """The device's own account of what it reveals, as `shoal.device.ledger.Ledger` keeps it."""

    def charge(
        self, plan: Plan, answer_digest: str | None = None, *, token: str | None = None
    ) -> object:
        """Charge one report, durably and once for a token, or raise `PrivacyRefusal`."""

    def settle(self, token: str) -> None:
        """Let a token go: its report is stored."""


class ReportMaker:
    """Makes the reports of one folder, with the device's memory and ledger if it has them."""

    def __init__(self, folder: Folder, memory: Remembering | None, ledger: Charging | None) -> None:
        self._folder, self._memory, self._ledger = folder, memory, ledger

    def make(self, plan: Plan, answers: Mapping[str, object], window: int, digest: str) -> bytes:
        """Return the batch that is sent of an answer; `digest` stands for the answer's key."""
        synthetic = self._synthetic(plan, encode(plan, answers), digest)
        if plan.parties is not None:
            from shoal.device.encryption import fit_to_messages  # most plans have one collector

            synthetic = fit_to_messages(synthetic, plan)
        return pack_reports(plan, synthetic, window=window).to_bytes()

    def _synthetic(self, plan: Plan, original: OriginalVector, digest: str) -> SyntheticVector:
        """Charge, then randomize; after a crash in between, the charge stands and is not repeated.

        What was drawn and not stored never left, so that one charge covers both attempts.
        """
        if self._ledger is None:
            if self._memory is not None and plan.memory is not None:
                return self._memory.report(plan, original)
            return flip(plan, original)
        token = self._token(plan, digest)
        if self._memory is not None and plan.memory is not None:
            return self._memory.report(plan, original, ledger=self._ledger, token=token)
        self._ledger.charge(plan, token=token)
        return flip(plan, original)

    def _token(self, plan: Plan, digest: str) -> str:
        """Return the ledger's name for one answer of this folder; another folder has another."""
        own = f"{self._folder.identity()}.{plan.id}.{digest}"
        return hashlib.sha256(own.encode()).hexdigest()

    def settle(self, plan: Plan, digest: str) -> None:
        """Let the ledger forget the token of an answer whose report is stored."""
        # The report is stored; a token that stays behind stands for it alone and does no harm.
        if self._ledger is not None:
            with contextlib.suppress(ShoalError):
                self._ledger.settle(self._token(plan, digest))
