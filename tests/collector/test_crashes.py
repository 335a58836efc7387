"""Kill it, cut its log, fill its disk: no report is lost, none is counted twice.

The environment variables `SHOAL_KILLS` and `SHOAL_LOGS` ask for more of each than the default.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from random import Random

from shoal import Flags
from shoal.collector.store import Store
from shoal.plans import Plan
from shoal.reports import Batch

from .crash_help import Devices, Served, all_made
from .store_help import make_plan, open_reports, released, summed, tally_of, upload

KILLS = int(os.environ.get("SHOAL_KILLS", "4"))
LOGS = int(os.environ.get("SHOAL_LOGS", "60"))

WIDE = make_plan(Flags("f", tuple(f"option {number}" for number in range(40))), crowd=100)


def check_total(folder: Path, plan: Plan, made: list[Batch]) -> int:
    """Check that everything made is in whole crowds, once; return how many there are."""
    with closing(Store(folder)) as store:
        tallies = released(store, plan)
        assert open_reports(store.database, plan) == 0
        assert [one.reports for one in tallies] == [plan.reports_needed] * len(tallies)
        assert sum(map(len, made)) == plan.reports_needed * len(tallies)
        assert summed(tallies) == tally_of(plan, *made)
    return len(tallies)


def filled_up(plan: Plan, made: list[Batch]) -> Batch:
    """Return the reports that complete the last crowd, so that every report is in a release."""
    missing = -sum(map(len, made)) % plan.reports_needed
    return upload(plan, missing or plan.reports_needed, seed=77)


def released_now(served: Served) -> dict[int, object]:
    """Return what the console shows of all sealed crowds."""
    at = f"/v1/plans/{served.plan.id}/epochs"
    epochs = served.ask(at)["epochs"]
    sealed = [epoch["number"] for epoch in epochs if epoch["state"] == "sealed"]
    return {number: served.ask(f"{at}/{number}")["tally"] for number in sealed[-3:]}


class TestKills:
    def test_random_kills_under_load(self, tmp_path: Path):
        """Each comes at a random moment: while it starts, while it commits, while it seals."""
        chance = Random(8)
        seen: dict[int, object] = {}
        with Served(tmp_path / "data", WIDE) as served:
            devices = [Devices(served, seed) for seed in (1, 2, 3)]
            for one in devices:
                one.start()
            for kill in range(KILLS):
                if kill % 5 == 0:
                    served.launch()
                    time.sleep(chance.random() * 1.5)
                else:
                    served.start()
                    time.sleep(chance.random() * 0.8)
                    seen |= released_now(served)
                    time.sleep(chance.random() * 0.1)
                served.kill()
            served.start()
            for one in devices:
                one.finish()
            made = all_made(devices)
            made.append(filled_up(WIDE, made))
            assert served.post(made[-1]) == (202, "")
            assert served.stop() == 0
        assert [one.surprises for one in devices] == [[], [], []]
        crowds = check_total(served.folder, WIDE, made)
        assert crowds >= 2
        # What anybody was shown before a kill is what is there in the end.
        with closing(Store(served.folder)) as store:
            for number, document in seen.items():
                found = store.tally(WIDE.id, number)
                assert found is not None
                assert found[1].to_json() == document
        print(f"{KILLS} kills, {sum(map(len, made))} reports in {crowds} crowds")

    def test_a_stop_under_load_loses_nothing_either(self, tmp_path: Path):
        with Served(tmp_path / "data", WIDE) as served:
            devices = [Devices(served, seed) for seed in (4, 5)]
            for one in devices:
                one.start()
            for _ in range(2):
                served.start()
                time.sleep(0.4)
                assert served.stop() == 0
            served.start()
            for one in devices:
                one.finish()
            made = all_made(devices)
            made.append(filled_up(WIDE, made))
            assert served.post(made[-1]) == (202, "")
            assert served.stop() == 0
        check_total(served.folder, WIDE, made)
