"""Reports that JavaScript and Go split for a leader and a helper; Python verifies them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal import Flags, Plan, Survey
from shoal.device.sharing import task_of
from shoal.protocol.dap import SecretKey
from shoal.protocol.dap.messages import HpkeConfigList, Report, Role, UploadRequest
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Aggregators, Promise, ShareNoise
from shoal.protocol.vdaf import AggregatorInput
from shoal.protocol.wire import row_bytes
from tests.clients.go_help import drive
from tests.clients.js_help import needs_node, run_driver

pytestmark = pytest.mark.slow

WEEK = 7 * 86_400
FRACTIONS = (None, "0.9", "0.333", "0.07")


@dataclass(frozen=True)
class Case:
    """A report to be shared, and the keys of the two who share it."""

    plan: Plan
    window: int
    bits: int
    secrets: tuple[SecretKey, SecretKey]

    def line(self) -> str:
        """Return the case as a driver reads it; other keys come first in the lists."""
        lists = [
            HpkeConfigList((SecretKey((one.id + 1) % 256, one.secret).public, one.public))
            for one in self.secrets
        ]
        return json.dumps(
            {
                "plan": self.plan.to_json(),
                "id": self.plan.id,
                "window": self.window,
                "row": self.bits.to_bytes(row_bytes(self.plan.bits), "little").hex(),
                "leader": lists[0].to_bytes().hex(),
                "helper": lists[1].to_bytes().hex(),
            }
        )

    def check(self, upload: bytes) -> None:
        """Both aggregators open their share, verify it, and add up to the report."""
        task, (report,) = task_of(self.plan), UploadRequest.from_bytes(upload).reports
        assert report.report_metadata.time == self.window
        assert len(upload) == task.report_bytes
        leader, helper = self._opened(report)
        both = task.verification(b"seed")
        state, request = both.leader_init(leader)
        share, response = both.helper_init(helper, request)
        shares = [both.leader_finish(state, response), share]
        found = task.prio3.unshard([task.prio3.aggregate([one]) for one in shares], 1)
        value = sum(bit << place for place, bit in enumerate(found))
        weight = min(self.bits.bit_count(), self.plan.max_weight or 0)
        assert value & ~self.bits == 0
        assert value.bit_count() == weight

    def _opened(self, report: Report) -> list[AggregatorInput]:
        """Nothing opens unless the configuration of the task is the same, byte by byte."""
        metadata, public = report.report_metadata, report.public_share
        sent = report.leader_encrypted_input_share, report.helper_encrypted_input_share
        roles = Role.LEADER, Role.HELPER
        task = task_of(self.plan)
        return [
            AggregatorInput(
                metadata.report_id,
                public,
                task.open_input_share(role, secret, metadata, public, ciphertext),
            )
            for role, secret, ciphertext in zip(roles, self.secrets, sent, strict=True)
        ]


def cases(count: int, seed: int) -> list[Case]:
    chance, found = random.Random(seed), []
    for _ in range(count):
        bits = chance.choice((1, 2, 3, 7, 8, 9, 64, 200))
        plan = Plan(
            Survey("words", (Flags("used", tuple(f"é{place}" for place in range(bits))),)),
            FlipProbability.at_least(0.25),
            Promise("proven", "900", delta="1e-6"),
            crowd_size=chance.randint(2, 10**7),
            window=chance.choice((3600, WEEK)),
            view="counts",
            honest_fraction=chance.choice(FRACTIONS),
            parties=Aggregators(
                "https://l.example:8443",
                "https://h.example",
                chance.randint(1, bits),
                noise=chance.choice((None, ShareNoise("laplace", "2.5"))),
            ),
        )
        window = chance.choice((255, 256, 2955, 500_000))
        first, second = (SecretKey(window % 256, chance.randbytes(32)) for _ in range(2))
        value = chance.choice((0, (1 << bits) - 1, chance.getrandbits(bits)))
        found.append(Case(plan, window, value, (first, second)))
    return found


def check_all(asked: list[Case], answered: bytes) -> None:
    uploads = [bytes.fromhex(line) for line in answered.decode().splitlines()]
    for case, upload in zip(asked, uploads, strict=True):
        case.check(upload)


@needs_node
def test_javascript_shares_what_python_opens() -> None:
    asked = cases(40, seed=1)
    check_all(asked, run_driver("\n".join(one.line() for one in asked).encode(), "share"))


def test_go_shares_what_python_opens(driver: Path) -> None:
    asked = cases(40, seed=2)
    check_all(asked, drive(driver, "share", "\n".join(one.line() for one in asked).encode()))
