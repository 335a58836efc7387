"""What a plan with questions about a device's past guarantees."""

from __future__ import annotations

import pytest

from shoal import Plan, Survey, YesNo, plan
from shoal.planning.guarantees import guarantees
from shoal.planning.threats import observers
from shoal.protocol.survey import Arm, Retention

ARM = Arm("onboarding", ("control", "tour"))


def made(*questions: object) -> Plan:
    survey = Survey("tool", questions).cross(*(one.name for one in questions))  # type: ignore[arg-type, attr-defined]
    return plan(survey, crowd_size=2000, epsilon=1, delta="1e-6", view="counts", window="1w")


@pytest.fixture(scope="module")
def aged() -> Plan:
    return made(ARM, Retention("weeks", 2, "1w"))


def test_ages_compose_all_reports_of_a_device(aged: Plan):
    certificate = aged.certificate()
    reader, of_all, *_ = observers(certificate, 1.0)
    assert (of_all.who, of_all.holds) == ("reader of all releases", "theorem")
    assert of_all.sees == "all 3 releases that one device may be in"
    assert of_all.epsilon == certificate.compose(3).epsilon(delta=reader.delta)
    assert 1 < of_all.epsilon <= 3.0001


@pytest.mark.slow
def test_one_report_needs_no_composition():
    once = made(ARM, YesNo("finished"))
    assert "reader of all releases" not in [one.who for one in observers(once.certificate(), 1.0)]
    found = guarantees(once, "1e-6")
    assert found["a year of reports"].epsilon == found["one report"].epsilon
    assert found["all reports of one answer"].epsilon == found["one report"].epsilon


def test_a_year_has_as_many_reports_as_a_device_makes(aged: Plan):
    found = guarantees(aged, "1e-6")
    assert found["a year of reports"].epsilon == 3 * found["one report"].epsilon
    assert found["all reports of one answer"].epsilon == 3 * found["one report"].epsilon


@pytest.mark.slow
def test_what_no_epsilon_covers_is_said(aged: Plan):
    said = " ".join(aged.certificate().assumptions)
    assert "No epsilon covers when a device reports" in said
    assert "3 reports in all" in said
    assert "it is a new device: the reports of both compose" in said
    plain = made(YesNo("a"), YesNo("b")).certificate().assumptions
    assert not any("No epsilon covers" in sentence for sentence in plain)
