"""RAPPOR collections: google/rappor's own example, asymmetric channels, collisions, bad files.

Simulated collections are drawn from their exact law with seeds, so a test passes or fails for ever.
"""

from __future__ import annotations

import itertools
import json
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pytest

from shoal.analysis.text.least_squares import debias
from shoal.analysis.text.rappor import (
    RapporCollection,
    RapporMap,
    decode_rappor,
    read_counts,
    read_map,
)
from shoal.cli import run
from shoal.errors import InputError
from shoal.lab.populations import simulate_rappor, write_rappor
from shoal.planning.rappor import RapporParameters

DATA = Path(__file__).parent.parent / "data" / "rappor"
FILES = [str(DATA / f"{name}.csv") for name in ("params", "counts", "map")]
EXAMPLE = RapporParameters(k=128, h=2, m=8, p="0.5", q="0.75", f="0")


@cache
def example():
    return decode_rappor(*FILES, fdr=0.001)


def falling(texts: int, reports: int) -> dict[str, int]:
    shares = np.exp(-np.arange(texts) / 30)
    people = np.floor(reports * shares / shares.sum()).astype(int)
    return {f"V_{place + 1}": int(count) for place, count in enumerate(people)}


@pytest.mark.slow
class TestExample:
    """What google/rappor's recorded output finds nothing in."""

    @cached_property
    def decoded(self):
        return example()

    def test_popular_texts_are_found_in_their_order(self):
        finds = self.decoded.texts.discoveries
        ranks = [int(text.value.removeprefix("V_")) for text in finds]
        assert len(finds) > 80
        assert sorted(ranks[:16]) == list(range(1, 17))
        assert ranks[:16] == sorted(ranks[:16])
        # beyond the first, neighbours are closer than their sigma and may change places
        assert max(abs(rank - place) for place, rank in enumerate(ranks[:60], 1)) <= 8
        assert max(ranks) <= 100

    def test_counts_fall_as_the_simulation_that_made_them(self):
        """The shares are those of an exponential fall over 300 texts, which the files do not say.

        Each interval covers with .95; that fewer than 75 of the first 80 do has probability .2 %
        if they are independent.
        """
        people = falling(300, 10_000_000)
        rows = [self.decoded[f"V_{rank}"] for rank in range(1, 81)]
        covered = sum(row.low <= people[row.value] <= row.high for row in rows)
        assert covered >= 72

    def test_shares_add_to_one(self):
        assert 1 in self.decoded.together
        together = self.decoded.together
        assert together.high - together.low < 0.02
        missing = 1 - sum(row.count for row in self.decoded.texts.discoveries) / 1e7
        assert 0.03 < missing < 0.07

    def test_promises_are_those_that_rappor_records(self):
        """exp(e_1) = 9 and e_inf = Inf, in google/rappor's test.csv."""
        first, ever = self.decoded.promises
        assert first.epsilon == pytest.approx(2.197224577, rel=1e-9)
        assert ever.epsilon == float("inf")
        assert self.decoded.to_json()["promises"][1]["epsilon"] is None

    def test_json_and_picture(self, capsys, tmp_path):
        picture = tmp_path / "texts.svg"
        assert run(["decode", "--rappor", *FILES, "--json", "--plot", str(picture)]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["reports"] == 10_000_000
        assert document["rappor"]["p_star"] == 0.5
        assert picture.read_bytes().startswith(b"<?xml")


class TestChannel:
    @pytest.mark.parametrize(("p", "q", "f"), [(0.5, 0.75, 0), (0.1, 0.9, 0.25), (0, 0.6, 0.0)])
    def test_debiased_counts_have_the_stated_mean_and_variance(self, p, q, f):
        """By enumeration of the law: three people, one of them with the bit set."""
        given = RapporParameters(k=2, h=1, m=1, p=p, q=q, f=f)
        zero, one = float(given.p_star), float(given.q_star)
        mean = square = 0.0
        for bits in itertools.product((0, 1), repeat=3):
            rates = (one, zero, zero)
            chance = np.prod([r if b else 1 - r for b, r in zip(bits, rates, strict=True)])
            counts = np.array([[sum(bits), 0.0]])
            data = debias(np.array([3.0]), counts, zero_rate=zero, one_rate=one, hashes=1)
            mean += chance * data.debiased[0, 0]
            square += chance * data.debiased[0, 0] ** 2
        assert mean == pytest.approx(1)
        assert square - mean**2 == pytest.approx(data.flips(np.ones((1, 2)))[0, 0])

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("p", "q", "f"), [("0.1", "0.4", "0"), ("0.25", "0.75", "0.5"), ("0", "0.5", "0.02")]
    )
    def test_coverage_of_asymmetric_channels(self, p, q, f):
        """Of 3 x about 60 intervals at .95, fewer than .88 would be four sigmas."""
        given = RapporParameters(k=128, h=2, m=16, p=p, q=q, f=f)
        people, candidates = falling(80, 2_000_000), [f"V_{rank}" for rank in range(1, 161)]
        covered, found, false, summed = 0, 0, 0, 0
        for seed in range(3):
            decoded = decode_rappor(given, *simulate_rappor(given, people, candidates, seed=seed))
            finds = decoded.texts.discoveries
            covered += sum(row.low <= people.get(row.value, 0) <= row.high for row in finds)
            false += sum(row.value not in people for row in finds)
            found += len(finds)
            summed += 1 in decoded.together
        assert found > 3 * 30
        assert covered / found > 0.88
        assert false / found < 0.1
        assert summed >= 2

    def test_hashes_that_collide_set_one_bit(self):
        """A text whose two hashes agree everywhere raises its bit by its people, not by twice."""
        given = RapporParameters(k=32, h=2, m=8, p="0.1", q="0.9", f="0")
        generator = np.random.default_rng(1)
        places = np.sort(generator.integers(32, size=(8, 2, 40)), axis=1)
        places[:, :, 0] = [5, 32]  # one bit, the other nowhere
        places[:, 1][places[:, 1] == places[:, 0]] = 32
        truth = np.zeros((8, 33))
        np.add.at(truth, (np.arange(8)[:, None], places[:, :, 0]), 5_000)
        np.add.at(truth, (np.arange(8)[:, None], places[:, :, 1]), 3_000)
        sizes = np.full(8, 8_000)
        ones = np.rint(0.1 * 8_000 + 0.8 * truth[:, :32]).astype(np.int64)
        texts = tuple(f"t{number}" for number in range(40))
        candidates = RapporMap(texts, places.astype(np.int32), 0)
        decoded = decode_rappor(given, RapporCollection(sizes, ones), candidates)
        assert decoded["t0"].count == pytest.approx(40_000, rel=0.02)
        assert decoded["t1"].count == pytest.approx(24_000, rel=0.02)


class TestFiles:
    given = RapporParameters(k=16, h=2, m=4, p="0.25", q="0.75", f="0")

    def test_written_and_read_again(self, tmp_path):
        people = {'quo"ted': 300, "two words": 200, "unknown": 50}
        candidates = ['quo"ted', "two words", "nobody, really", ""]
        drawn = simulate_rappor(self.given, people, [*candidates[:3], "(empty)"], seed=3)
        write_rappor(tmp_path, self.given, *drawn)
        assert RapporParameters.read(tmp_path / "params.csv") == self.given
        counts = read_counts(tmp_path / "counts.csv", self.given)
        assert (counts.ones == drawn[0].ones).all()
        assert (counts.sizes == drawn[0].sizes).all()
        candidates_read = read_map(tmp_path / "map.csv", self.given)
        assert candidates_read.texts == drawn[1].texts
        assert (np.sort(candidates_read.positions, 1) == np.sort(drawn[1].positions, 1)).all()

    def test_what_is_wrong_is_said_in_one_sentence(self, tmp_path):
        for file, content, sentence in (
            ("counts", "", "has 0 rows"),
            ("counts", "9,1,2\n", "3 numbers"),
            ("counts", ",".join(["10"] * 17) + "\n", "has 1 rows"),
            ("counts", (",".join(["10"] * 17) + "\n") * 5, "more than 4 rows"),
            ("counts", (",".join(["10", "11", *["3"] * 15]) + "\n") * 4, "11 ones at bit 1"),
            ("counts", (",".join(["0"] * 17) + "\n") * 4, "no reports"),
            ("counts", "cohort" + ",1" * 16 + "\n", "'cohort' where a whole number"),
            ("counts", "-1" + ",1" * 16 + "\n", "'-1' where a whole number"),
            ("map", "", "no candidates"),
            ("map", "tea,1,2\n", "2 positions"),
            ("map", "tea,1,2,17,18,33,34,49,65\n", "position 65"),
            ("map", "tea,0,2,17,18,33,34,49,50\n", "position 0"),
            ("map", "tea,1,2,3,18,33,34,49,50\n", "3 positions from 1 to 16"),
            ("map", "tea,1,2,3,4,5,6,7,8\n", "8 positions from 1 to 16"),
            ("map", "\udcff,1", "UTF-8"),
            ("map", '"' + "x" * 200_000, "not CSV"),
        ):
            path = tmp_path / f"{file}.csv"
            path.write_bytes(content.encode("utf-8", "surrogateescape"))
            with pytest.raises(InputError, match=sentence) as refused:
                {"counts": read_counts, "map": read_map}[file](path, self.given)
            assert "\n" not in str(refused.value)

    def test_the_command_names_the_files_it_needs(self, capsys):
        assert run(["decode", "--rappor", FILES[0]]) == 2
        assert "PARAMS.csv, COUNTS.csv and MAP.csv" in capsys.readouterr().err
