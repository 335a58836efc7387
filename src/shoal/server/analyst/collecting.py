"""Collect the batches of a plan from its leader: DAP's collector.

A collection job is ended at the leader only after its result is on the disk. Interrupted in
between, the same result comes again and is recognized.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shoal.analysis.tally import CohortCounts, Tally
from shoal.errors import ReportError, TransportError, VdafError
from shoal.protocol.dap.messages import MEDIA_TYPE, CollectionJobReq, CollectionJobResp, Role
from shoal.protocol.dap.task import NEXT_BATCH, SecretKey, Task
from shoal.protocol.plan import Plan
from shoal.server.core.peer import Peer, PeerReply
from shoal.support.connections import parse_address


class Collected(NamedTuple):
    """A batch that was collected; `digest` is that of the helper's share, which it has once.

    A helper gives out one share for a batch, so that no leader can pass a batch off as another.
    """

    window: int
    tally: Tally
    digest: bytes


class Collecting:
    """Collects the batches of one plan."""

    def __init__(self, plan: Plan, key: SecretKey, leader: Peer, token: str) -> None:
        self._task, self._key, self._leader, self._token = Task(plan), key, leader, token
        self.plan = plan
        _, path = parse_address(self._task.endpoint(Role.LEADER))
        self._jobs = f"{path}tasks/{self._task.path}/collection_jobs"

    def next(self) -> tuple[Collected, str] | None:
        """Return the next batch, with the address of its collection job; None if none is full."""
        reply = self._ask("POST", self._jobs, NEXT_BATCH.to_bytes())
        where = reply.headers.get("location", "")
        if not where.startswith(self._jobs + "/"):
            raise TransportError("the leader does not say where the collection job is.")
        if not reply.content:
            return None
        kind = f"{MEDIA_TYPE};message={CollectionJobResp.media_type}"
        if reply.headers.get("content-type", "").replace(" ", "") != kind:
            raise TransportError("the leader answered with something else.")
        try:
            return self._opened(reply.content), where
        except (ReportError, VdafError) as error:
            raise TransportError(f"the leader's result cannot be used: {error}") from error

    def end(self, where: str) -> None:
        """End a collection job, whose result is on the disk."""
        self._ask("DELETE", where, None)

    def every(self) -> Iterator[Collected]:
        """Yield the batches that are full; each is ended when the next one is asked for."""
        while (found := self.next()) is not None:
            yield found[0]
            self.end(found[1])

    def _opened(self, content: bytes) -> Collected:
        response, plan = CollectionJobResp.from_bytes(content), self.plan
        if response.report_count != plan.reports_needed or response.interval.duration != 1:
            raise ReportError("the batch is not one crowd of one window.")
        if response.interval.start >= 1 << 32:
            raise ReportError("the window of the batch is not one of this time.")
        shares = [
            self._task.open_aggregate_share(role, self._key, NEXT_BATCH, share)
            for role, share in (
                (Role.LEADER, response.leader_encrypted_agg_share),
                (Role.HELPER, response.helper_encrypted_agg_share),
            )
        ]
        sums = map(self._task.prio3.signed, self._task.prio3.unshard(shares, response.report_count))
        lowest, highest = plan.possible_counts(response.report_count)
        found = list(sums)
        if min(found) < lowest or max(found) > highest:
            raise ReportError(f"a count is not between {lowest:,} and {highest:,}.")
        counts = np.array(found, np.int64)
        cohorts = None
        if plan.cohorts is not None:  # such a plan has one
            cohorts = (CohortCounts(response.report_count, counts.copy()),)
        tally = Tally(plan.id, response.report_count, counts, cohorts=cohorts)
        share = response.helper_encrypted_agg_share.to_bytes()
        return Collected(response.interval.start, tally, hashlib.sha256(share).digest())

    def _ask(self, method: str, path: str, body: bytes | None) -> PeerReply:
        headers = {"Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers["Content-Type"] = CollectionJobReq.content_type()
        reply = self._leader.ask(method, path, body, headers)
        if not 200 <= reply.status < 300:  # DAP leaves the choice
            raise TransportError(f"the leader answered {reply.status}.")
        return reply
