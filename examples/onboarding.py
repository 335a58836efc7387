"""Two ways to greet new users: which one works better, and who comes back.

Simulated users start a tool over eight weeks. Each device draws one of two onboardings. Once, it
reports whether the setup was finished, and how far it got. In every week in which it is used, it
reports its age in weeks. Users who leave never report again. There is no identifier: what is known
about a device's past, the device said itself.

Run ``python onboarding.py FOLDER``. It writes the plans, a tally of each release, and a site with
the experiment and the retention curve.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from shoal.experiments import Arm, Funnel, Retention, experiment, funnel, retention
from shoal.reports.site import SiteRelease, site_pages, write_pages

ARMS, STEPS = ("list", "tour"), ("installed", "signed in", "invited a friend")
FINISHES, STAYS = (0.60, 0.64), (0.70, 0.76)
"""The chance to finish the setup, and to stay another week, in each arm."""
WEEKS, STARTERS, PERIODS = 8, 6_000, 4
PROMISE: dict[str, Any] = {"epsilon": 1, "delta": "1e-7", "view": "counts"}

SETUP = shoal.Survey(
    "setup",
    (
        Arm("onboarding", ARMS, title="Onboarding"),
        shoal.YesNo("finished", title="Finished the setup"),
        Funnel("steps", STEPS, title="Steps of the setup"),
    ),
    title="Does the tour help?",
).cross("onboarding", "finished")
WEEKLY = shoal.Survey(
    "weekly",
    (
        Arm("onboarding", ARMS, title="Onboarding"),
        Retention("age", periods=PERIODS, period="1w", title="Weeks since the first"),
    ),
    title="Who comes back?",
).cross("onboarding", "age")


def first_days(generator: np.random.Generator) -> list[dict[str, Any]]:
    """Return what the devices of one week's new users report once."""
    arms = generator.integers(2, size=STARTERS)
    finished = generator.random(STARTERS) < np.take(FINISHES, arms)
    furthest = np.where(finished, 1 + (generator.random(STARTERS) < 0.3), 0)
    return [
        {"onboarding": ARMS[arm], "finished": bool(done), "steps": STEPS[step]}
        for arm, done, step in zip(arms, finished, furthest, strict=True)
    ]


def weeks_of_use(generator: np.random.Generator) -> Iterator[list[dict[str, Any]]]:
    """Yield the reports of each week: of new users, and of those who have not left."""
    arms = generator.integers(2, size=(WEEKS, STARTERS))
    lives = generator.geometric(1 - np.take(STAYS, arms)) - 1  # the last age at which it is used
    for week in range(WEEKS):
        yield [
            {"onboarding": ARMS[arm], "age": str(week - start)}
            for start in range(max(week - PERIODS, 0), week + 1)
            for arm in arms[start][lives[start] >= week - start]
        ]


def releases(
    plan: shoal.Plan, weeks: Iterator[list[dict[str, Any]]], folder: Path
) -> list[shoal.Tally]:
    """Randomize and count each week's answers, and write the tallies."""
    found = []
    for number, answers in enumerate(weeks, 1):
        run = shoal.simulate(plan, answers=answers, seed=number)
        tally = run.estimates.tally.named(f"week {number}")
        tally.write(folder / f"{plan.survey.name}-{number}.json")
        found.append(tally)
    return found


def main(folder: Path) -> None:
    """Simulate eight weeks, print the results and write the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(1)
    plans = [shoal.plan(survey, crowd_size=STARTERS, **PROMISE) for survey in (SETUP, WEEKLY)]
    for plan in plans:
        plan.write(folder / f"{plan.survey.name}.json")
    setups = releases(plans[0], (first_days(generator) for _ in range(WEEKS)), folder)
    weekly = releases(plans[1], weeks_of_use(generator), folder)
    together = sum(setups[1:], setups[0]).of_different_people()
    together.write(folder / "setup.tally.json")
    print(experiment(plans[0], together), end="\n\n")
    print(funnel(plans[0], together), end="\n\n")
    for arm in ARMS:
        print(retention(plans[1], weekly, group=("onboarding", arm)), end="\n\n")
    shown = [SiteRelease.of(plans[0], together, "2026-03-02")]
    shown += [
        SiteRelease.of(plans[1], tally, f"2026-{1 + day // 28:02}-{1 + day % 28:02}")
        for day, tally in zip(range(0, 7 * WEEKS, 7), weekly, strict=True)
    ]
    write_pages(folder / "site", site_pages(shown))
    print(f"pages written to {folder / 'site'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
