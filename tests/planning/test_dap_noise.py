"""Noise for anybody's DAP: the figures of the draft, sensitivities by brute force, inverses."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from typing import Any

import pytest

from shoal import Choice, PrivacyRefusal, Survey
from shoal.cli.commands import invoke
from shoal.errors import InputError
from shoal.planning.certificate import certify
from shoal.planning.dap_noise import DapNoise, Vdaf, dap_noise
from shoal.theory.discrete_gaussian import delta_of_shifts

ONE_HOT: dict[str, Any] = {"length": 100, "batch": 100_000, "delta": "1e-9"}

DRAFT = {
    ".317": (26.1337, 5.0, 23.3903, 33.0788),
    ".906": (12.28, 6.5, 8.5402, 12.0777),
    "1.528": (9.558, 7.0, 5.1904, 7.3403),
}
"""draft-wang-ppm-differential-privacy: client sigma, EPSILON_0; aggregator sigma, one and both."""


@pytest.mark.parametrize(
    ("epsilon", "most"), [(".317", 24.7), (".906", 9.95), ("1.528", 6.73)], ids=str
)
@pytest.mark.slow
def test_the_tables_of_the_draft(epsilon: str, most: float):
    noise = dap_noise("multihotcountvec", epsilon=epsilon, **ONE_HOT)
    theirs, eps0, one, both = DRAFT[epsilon]
    clients, gaussian = noise.clients, noise.aggregators[0]
    assert clients is not None
    assert clients.sigma <= most < theirs
    # their sigma follows from their EPSILON_0, and ours from ours
    for at, sigma in ((eps0, theirs), (clients.eps0, clients.sigma)):
        assert math.sqrt(1e5 * math.exp(at)) / (math.exp(at) - 1) == pytest.approx(sigma, rel=1e-4)
    assert gaussian.sigma_if_one_adds == pytest.approx(one, rel=1e-3)
    assert gaussian.sigma_if_both_add == pytest.approx(both, rel=1e-3)


@pytest.mark.slow
def test_flips_are_those_of_a_certificate():
    """A second way to the same numbers: the certificate of a survey of one question."""
    noise = dap_noise("multihotcountvec", length=20, batch=3000, epsilon=1, delta="1e-6").clients
    assert noise is not None
    survey = Survey("s", (Choice("c", tuple(f"o{j}" for j in range(20))),))
    certificate = certify(
        survey, q=Fraction(noise.q), crowd_size=3000, view="counts", max_weight=noise.max_weight
    )
    assert certificate.delta(epsilon=1.0).high == pytest.approx(noise.delta, rel=1e-9)
    assert 0.9e-6 < noise.delta <= 1e-6
    assert noise.dropped_delta <= 1e-8
    assert noise.local_epsilon >= certificate.local_epsilon
    dropped = certificate.to_json(epsilon=1.0)["dropped"]
    assert dropped["price"] == pytest.approx(noise.dropped_delta, rel=1e-3)


def test_eps0_and_epsilon_are_inverses():
    wish: dict[str, Any] = {"length": 20, "batch": 3000, "delta": "1e-6"}
    there = dap_noise("multihotcountvec", epsilon=1, **wish)
    assert there.clients is not None
    back = dap_noise("multihotcountvec", eps0=str(there.clients.eps0), **wish)
    assert back.clients is not None
    assert 0.995 < back.epsilon <= 1.0
    assert back.clients.delta <= 1e-6


def test_the_draft_s_eps0_is_proven_to_be_better_than_it_says():
    noise = dap_noise("multihotcountvec", eps0="5.0", **ONE_HOT)
    assert noise.epsilon < 0.30 < 0.317


def _measurements(vdaf: Vdaf, length: int, most: int, weight: int) -> list[tuple[int, ...]]:
    if vdaf in ("count", "sum"):
        return [(value,) for value in range(most + 1)]
    values = most if vdaf == "sumvec" else 1
    every = itertools.product(range(values + 1), repeat=length)
    if vdaf == "histogram":
        return [one for one in every if sum(one) == 1]
    return [one for one in every if vdaf == "sumvec" or sum(one) <= weight]


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize(
    ("vdaf", "length", "most", "weight"),
    [
        ("count", 1, 1, 1),
        ("sum", 1, 7, 1),
        ("sumvec", 2, 3, 1),
        ("histogram", 4, 1, 1),
        ("histogram", 2, 1, 1),
        ("multihotcountvec", 4, 1, 1),
        ("multihotcountvec", 4, 1, 3),
        ("multihotcountvec", 1, 1, 1),
    ],
)
def test_sensitivities_by_trying_all(
    vdaf: Vdaf, length: int, most: int, weight: int, neighbours: Any
):
    allowed = _measurements(vdaf, length, most, weight)
    nothing = (0,) * len(allowed[0])
    others = allowed if neighbours == "replace" else [nothing]
    changes = [
        [abs(a - b) for a, b in zip(x, y, strict=True)]
        for x, y in itertools.product(allowed, others)
    ]
    more: dict[str, Any] = {
        "sum": {"max_measurement": most},
        "sumvec": {"max_measurement": most, "length": length},
        "histogram": {"length": length},
        "multihotcountvec": {"length": length, "weight": weight},
    }.get(vdaf, {})
    noise = dap_noise(vdaf, batch=50, epsilon=2, delta="1e-3", neighbours=neighbours, **more)
    gaussian, laplace = noise.aggregators
    largest = max(sum(change) for change in changes)
    assert noise.numbers * noise.moved_by == largest
    assert max(sum(map(bool, change)) for change in changes) == noise.numbers
    assert max(max(change) for change in changes) == noise.moved_by
    # the loss of Laplace noise is the L1 distance over its scale
    assert Fraction(largest) / Fraction(str(laplace.scale)) <= 2
    assert Fraction(largest) / Fraction(str(laplace.scale)) > Fraction("1.99")
    assert delta_of_shifts(noise.moved_by, noise.numbers, gaussian.scale, 2.0, 1e-3) <= 1e-3


def test_who_can_flip():
    wish: dict[str, Any] = {"batch": 100, "epsilon": 1, "delta": "1e-4"}
    count = dap_noise("count", **wish)
    assert count.clients is not None  # a flipped bit is a bit
    assert count.clients.local_epsilon == pytest.approx(count.clients.eps0, rel=1e-3)
    assert "rejects a flipped vector" in (dap_noise("histogram", length=3, **wish).no_clients or "")
    for vdaf, more in (
        ("sum", {"max_measurement": 9}),
        ("sumvec", {"max_measurement": 9, "length": 2}),
    ):
        assert dap_noise(vdaf, **wish, **more).clients is None  # type: ignore[arg-type]
    added = dap_noise("multihotcountvec", length=3, **wish, neighbours="add-remove")
    assert added.clients is None
    assert "DAP tells the collector how many reports" in str(added).replace("\n ", "")


@pytest.mark.slow
def test_a_weight_that_is_too_small():
    with pytest.raises(PrivacyRefusal, match="max_weight must be larger"):
        dap_noise("multihotcountvec", epsilon=".906", max_weight=3, **ONE_HOT)
    local = dap_noise("multihotcountvec", eps0="5", max_weight=5, **ONE_HOT).clients
    assert local is not None
    assert (local.delta, local.dropped_delta) == (0.0, 0.0)  # only the local epsilon is left
    assert local.epsilon >= 10
    assert local.bias > 50


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"vdaf": "prio2"}, "vdaf must be"),
        ({"epsilon": None}, "give one of epsilon= and eps0="),
        ({"eps0": 1}, "give one of epsilon= and eps0="),
        ({"length": None}, "needs length="),
        ({"length": 10**6}, "length must be"),
        ({"max_measurement": 3}, "max_measurement is not a parameter of multihotcountvec"),
        ({"weight": 101}, "weight must be between 1 and 100"),
        ({"max_weight": 101}, "max_weight must be between 1 and 100"),
        ({"batch": 0}, "batch must be"),
        ({"epsilon": "1e9"}, "epsilon must be between"),
        ({"delta": 0}, "delta must be"),
        ({"delta": 1}, "delta must be"),
        ({"vdaf": "histogram", "epsilon": None, "eps0": 1}, "rejects a flipped vector"),
        ({"vdaf": "histogram", "length": 1}, "length must be"),
    ],
)
def test_bad_wishes(words: dict[str, Any], sentence: str):
    wish = {"vdaf": "multihotcountvec", "epsilon": 1, **ONE_HOT}
    with pytest.raises(InputError, match=sentence):
        dap_noise(**wish | words)


def test_the_command_prints_what_was_computed(capsys: pytest.CaptureFixture[str]):
    command = "dap-noise --vdaf count --batch 500 --epsilon 1 --delta 1e-5"
    assert invoke([*command.split(), "--json"]) == 0
    noise = dap_noise("count", batch=500, epsilon=1, delta="1e-5")
    assert isinstance(noise, DapNoise)
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(noise.to_json()))
    assert invoke(command.split()) == 0
    shown = capsys.readouterr().out
    assert shown == f"{noise}\n"
    assert max(map(len, shown.splitlines())) <= 80
