"""Surveys: bits, domains, TOML and JSON, and what is not a survey."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from shoal import Choice, Cross, Flags, Number, ShoalError, Survey, Text, YesNo, plan
from shoal.errors import SurveyError
from shoal.protocol.questions import CrossSide
from tests.strategies import bounded, mutated_bytes, mutated_json, surveys

TOML = """
name = "browser"

[[question]]
name = "features"
kind = "flags"
options = ["sync", "vpn", "reader"]

[[question]]
name = "channel"
kind = "choice"
options = ["release", "beta"]
missing = "option"

[[question]]
name = "languages"
kind = "flags"
options = ["en", "fr", "de", "it", "es"]
at_most = 2

[[question]]
name = "age"
kind = "number"
edges = [18, 65.50]
"""

MORE = (
    TOML.replace('options = ["release", "beta"]', 'options = ["release", "beta"]\nother = true')
    + """
column = "Age (years)"

[[question]]
name = "paying"
kind = "yes/no"

[[question]]
name = "drives"
kind = "yes/no"
missing = "option"

[[question]]
name = "city"
kind = "choice"
options = ["New York", "Paris"]
fold = true

[[cross]]
questions = ["age", "channel"]

[[cross]]
name = "habits"
questions = ["paying", "features=vpn", "drives"]
"""
)


WIDE = tuple(map(str, range(40_000)))


class TestBits:
    def test_blocks_follow_each_other(self):
        survey = Survey.from_toml(TOML)
        assert survey.bits == 3 + 3 + 5 + 3
        assert survey.slice_of("languages") == slice(6, 11)
        assert survey.bit("channel", "(missing)") == 5
        assert survey.bit("age", "18 to below 65.5") == 12
        assert [survey.bit(*label) for label in survey.labels] == list(range(14))

    def test_differing_bits_by_brute_force(self):
        """The most bits in which two allowed originals of one question differ."""
        several = [Flags("x", tuple("abcd"), at_most) for at_most in (1, 2, 3, 4)]
        for question in (*Survey.from_toml(MORE), *several):
            fewest, most = question.min_set_bits, question.max_set_bits
            allowed = [v for v in range(1 << question.bits) if fewest <= v.bit_count() <= most]
            apart = max((a ^ b).bit_count() for a in allowed for b in allowed)
            assert question.differing_bits == apart
            assert question.takes_one == all(v.bit_count() == 1 for v in allowed)

    def test_unknown_names_are_told_with_the_known(self):
        survey = Survey.from_toml(TOML)
        with pytest.raises(SurveyError, match="has no question 'colour'; it has 'features'"):
            survey["colour"]
        with pytest.raises(SurveyError, match="no option 'tabs'; it has 'sync', 'vpn', 'reader'"):
            survey.bit("features", "tabs")


class TestCrosses:
    SURVEY = Survey.from_toml(MORE)
    WORDS = Survey("s", (*SURVEY.asked, Text("word", 8, 1, 2), *SURVEY.crosses))

    def test_cells_follow_the_questions(self):
        survey = self.SURVEY
        assert [question.name for question in survey.asked] == [
            *("features", "channel", "languages", "age", "paying", "drives", "city")
        ]
        assert [cross.name for cross in survey.crosses] == ["age x channel", "habits"]
        assert survey["age x channel"].labels[:5] == (
            "below 18 x release",
            "below 18 x beta",
            "below 18 x (other)",
            "below 18 x (missing)",
            "18 to below 65.5 x release",
        )
        assert survey["habits"].labels[4:8] == (
            "paying x not vpn x not drives",
            "paying x not vpn x (missing)",
            "not paying x vpn x drives",
            "not paying x vpn x not drives",
        )
        assert survey["habits"].bits == 2 * 2 * 3
        assert survey["age x channel"].differing_bits == 2

    def test_python_and_toml_make_the_same_survey(self):
        asked = Survey(self.SURVEY.name, self.SURVEY.asked)
        crossed = asked.cross("age", "channel").cross(
            "paying", "features=vpn", "drives", name="habits"
        )
        assert crossed == self.SURVEY
        assert Survey.from_toml(crossed.to_toml()) == crossed
        assert Survey.from_json(crossed.to_json()).digest == crossed.digest != asked.digest

    @pytest.mark.parametrize(
        ("names", "why"),
        [
            (["age"], "two or more different questions"),
            (["age", "age"], "two or more different questions"),
            (["features=vpn", "features=vpn"], "two or more different"),
            (["age", "languages"], "at_most and cannot be crossed"),
            (["age", "languages=en"], "at_most and cannot be crossed"),
            (["age", "features"], "cross some of its flags, such as 'features=sync'"),
            (["age", "features=tabs"], "has no option 'tabs'"),
            (["age", "channel=beta"], "crossed as a whole, without '=beta'"),
            (["age", "colour"], "no question 'colour' to cross"),
            (["age", "habits"], "'habits' is a cross itself"),
            (["age", 5], "names its questions, got 5"),
            (["age", "word"], "is text and cannot be crossed"),
        ],
    )
    def test_what_cannot_be_crossed(self, names: list[Any], why: str):
        with pytest.raises(SurveyError, match=why):
            self.WORDS.cross(*names, name="c")
        document = self.WORDS.to_json()
        document["questions"].append({"kind": "cross", "name": "c", "questions": names})
        with pytest.raises(SurveyError, match=why):
            Survey.from_json(document)

    def test_crosses_come_last_and_from_their_own_survey(self):
        a, b, c = YesNo("a"), YesNo("b"), YesNo("c")
        cross = Cross("x", (CrossSide(a), CrossSide(b)))
        assert Survey("s", (a, b, cross)).bits == 6
        with pytest.raises(SurveyError, match="come after"):
            Survey("s", (a, b, cross, c))
        with pytest.raises(SurveyError, match="no question 'b' to cross"):
            Survey("s", (a, c, cross))
        with pytest.raises(SurveyError, match="of another survey"):
            Survey("s", (a, Choice("b", ("x", "y")), cross))
        with pytest.raises(SurveyError, match=r"use Survey\.cross"):
            Cross("x", ("a", "b"))  # type: ignore[arg-type]

    def test_a_name_with_a_sign_of_equality_is_read_in_one_way(self):
        """`a=b` is the question of this name, if there is one."""
        flags, named, other = Flags("a", ("b",)), YesNo("a=b"), YesNo("c")
        survey = Survey("s", (flags, named, other)).cross("a=b", "c")
        assert survey.crosses[0].sides[0].question == named
        assert Survey("s", (flags, other)).cross("a=b", "c").crosses[0].sides[0].flag == "b"
        with pytest.raises(SurveyError, match="of another survey"):
            Survey(
                "s", (flags, named, other, Cross("x", (CrossSide(flags, "b"), CrossSide(other))))
            )

    def test_cells_that_are_too_many_or_alike(self):
        survey = Survey("s", (Choice("a", ("p x q", "p")), Choice("b", ("r", "q x r"))))
        with pytest.raises(SurveyError, match="have the same label"):
            survey.cross("a", "b")
        wide = [Number(name, tuple(range(300))) for name in "abcdefgh"]
        with pytest.raises(SurveyError, match="at most 65536 bits, cross 'all' has 67"):
            Survey("s", tuple(wide)).cross(*"abcdefgh", name="all")


class TestEdges:
    def test_one_text_for_one_number(self):
        written: tuple[Any, ...] = ("-0.0", "0.50", 1.5, "007", 18, "1e2")
        assert Number("x", written).edges == ("0", "0.5", "1.5", "7", "18", "100")

    @pytest.mark.parametrize(
        "edges",
        [
            *((), (2, 1), (1, 1), ("1", "1.0"), ("x",), (float("nan"),), (float("inf"),)),
            *((True,), ("1e18",), ("1e-40",), "12", None, ({},)),
        ],
    )
    def test_other_edges_are_refused(self, edges: Any):
        with pytest.raises(SurveyError):
            Number("x", edges)


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "why"),
        [
            (lambda: Flags("f", ()), "at least 1"),
            (lambda: Choice("c", ("a",)), "at least 2"),
            (lambda: Choice("c", ("a", "a")), "twice"),
            (lambda: Choice("c", ("a;b", "c")), "';'"),
            (lambda: Choice("c", ("(missing)", "c")), "missing"),
            (lambda: Choice("c", ("a", "b"), missing="skip"), "missing"),  # type: ignore[arg-type]
            (lambda: Flags("c", ("a", "b"), 3), "between 1 and 2"),
            (lambda: Flags("c", ("a", "b"), 0), "between 1 and 2"),
            (lambda: Flags("c", ("a", "b"), True), "whole number"),
            (lambda: Flags("f", "ab"), "must be a list"),  # type: ignore[arg-type]
            (lambda: Flags("", ("a",)), "printable"),
            (lambda: Flags(" f", ("a",)), "printable"),
            (lambda: Flags("f\n", ("a",)), "printable"),
            (lambda: Flags("f", ("a\x1b[31m",)), "printable"),
            (lambda: Flags("f" * 201, ("a",)), "1 to 200"),
            (lambda: Choice("c", ("(other)", "c")), "other"),
            (lambda: Choice("c", ("a", "b"), other=1), "other of question 'c' is true or false"),  # type: ignore[arg-type]
            (lambda: Flags("c", ("a", "b"), fold="yes"), "fold of question 'c' is true or false"),  # type: ignore[arg-type]
            (lambda: Flags("c", ("A  b", "c", "a B"), fold=True), "option 'A  b' twice when"),
            (lambda: Choice("c", ("Stra\u00dfe", "STRASSE"), fold=True), "twice when case"),
            (lambda: Number("n", (1,), column=" x"), "column of question 'n' must be 1 to 200"),
            (lambda: YesNo("y", title="a\nb"), "the title of question 'y' must be 1 to 200"),
            (lambda: YesNo("y", title="\u202ea"), "the title of question 'y'"),
            (lambda: YesNo("y", text=5), "the text of question 'y' must be text"),  # type: ignore[arg-type]
            (lambda: YesNo("y", text="a" * 2001), "must be 1 to 2000 printable"),
            (lambda: YesNo("y", titles={"maybe": "x"}), "'maybe', which is not an option"),
            (lambda: YesNo("y", titles="yes"), "must be a table of options"),  # type: ignore[arg-type]
            (lambda: YesNo("y", titles={"yes": "no"}), "have the same title"),
            (lambda: Flags("f", ("a", "b"), titles={"a": ""}), "title of option 'a' of question"),
            (lambda: Number("n", (1,), unit=" x"), "unit of question 'n' must be 1 to 40"),
            (lambda: Survey("s", (YesNo("y"),), title=1), "the title of a survey must be text"),  # type: ignore[arg-type]
            (lambda: YesNo("y", missing="skip"), "missing"),  # type: ignore[arg-type]
            (lambda: Survey("s", ()), "at least one question"),
            (lambda: Survey("s", (Flags("a", WIDE), Flags("b", WIDE))), "this one takes 80000"),
            (lambda: Survey("s", (Flags("f", ("a",)), Flags("f", ("b",)))), "twice"),
            (lambda: Survey("s", ("f",)), "holds questions"),  # type: ignore[arg-type]
        ],
    )
    def test_each_with_its_rule(self, make: Any, why: str):
        with pytest.raises(SurveyError, match=why):
            make()

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (('kind = "flags"', 'kind = "prose"'), "kind of a question must be one of"),
            (('kind = "flags"', ""), "a table with a kind, one of"),
            (("at_most = 2", "at_most = 2\nmost = 3"), "has an unknown field 'most'"),
            (("[[question]]", "version = 1\n[[question]]"), "has an unknown field 'version'"),
            (('name = "browser"', ""), "has no field 'name'"),
            (("[[question]]", "[question]"), "TOML"),
            (("edges = [18, 65.50]", "edges = [18, nan]"), "decimal number"),
            (('questions = ["age", "channel"]', ""), "a cross has no field 'questions'"),
            (('questions = ["age", "channel"]', 'questions = "age"'), "must be a list"),
            (('name = "habits"', 'kind = "choice"'), "a cross has an unknown field 'kind'"),
            (('name = "habits"', 'name = "age"'), "'age' appears twice"),
            (('name = "browser"', "name = 1.5"), "name must be text"),
            (('options = ["sync", "vpn", "reader"]', "options = [1.5]"), "must be text"),
        ],
    )
    def test_toml_keys(self, change: tuple[str, str], why: str):
        with pytest.raises(SurveyError, match=why):
            Survey.from_toml(MORE.replace(*change))

    def test_files_that_cannot_be_read(self, tmp_path: Path):
        with pytest.raises(SurveyError, match="cannot read survey"):
            Survey.from_toml(tmp_path / "none.toml")
        (tmp_path / "s.toml").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(SurveyError, match="not valid TOML"):
            Survey.from_toml(tmp_path / "s.toml")

    @pytest.mark.parametrize("number", ["1" + "0" * 5000, "0x" + "f" * 5000])
    @pytest.mark.parametrize("key", ["at_most = 2", 'name = "browser"', "edges = [18, 65.50]"])
    def test_an_absurd_integer(self, key: str, number: str):
        name = key.split(" ")[0]
        value = f"[{number}]" if name == "edges" else number
        with pytest.raises(SurveyError):
            Survey.from_toml(TOML.replace(key, f"{name} = {value}"))


class TestDeepToml:
    """The time and memory of `tomllib` grow with the square of the parts of a dotted key."""

    @pytest.mark.parametrize(
        "text",
        [
            "a" + ".a" * 29_000 + " = 1",
            "[a" + ".a" * 29_000 + "]",
            "x = 1\n[[a" + ' . "a"' * 9 + "]]",
            "x = {y = 1, a" + ".'a'" * 9 + " = 1}",
            "x = " + "[" * 29_000 + "]" * 29_000,
            "x = " + "[\n" * 9 + "]" * 9,
            "x = " + "{a = " * 9 + "1" + "}" * 9,
        ],
    )
    def test_is_refused_before_it_is_parsed(self, text: str, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("tomllib.loads", None)
        with pytest.raises(SurveyError, match="at most 8"):
            Survey.from_toml(text)

    def test_so_is_a_very_long_text(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("tomllib.loads", None)
        with pytest.raises(SurveyError, match="at most 4,194,304 characters"):
            Survey.from_toml(TOML + "#" * (4 << 20))

    @pytest.mark.parametrize(
        "value",
        [
            '"MARKS"', "'MARKS'", '"""MARKS"""', "'''MARKS'''", '"\\"MARKS"', '"""\\"""MARKS"""',
            '""""MARKS"""""', "''''MARKS'''''", "1 # MARKS", "[[[[[[[1.5, 2.5]]]]]]]",
        ],
    )  # fmt: skip
    def test_texts_and_comments_may_have_dots_and_brackets(self, value: str):
        """What comes after them counts again."""
        with pytest.raises(SurveyError, match="needs at least one"):
            Survey.from_toml("x = " + value.replace("MARKS", "[{" * 20 + "." * 20))
        with pytest.raises(SurveyError, match="at most 8"):
            Survey.from_toml("x = " + value.replace("MARKS", "") + "\ny = " + "[" * 9)

    @pytest.mark.slow
    def test_as_many_options_as_a_report_has_bits(self):
        survey = Survey("wide", (Flags("f", tuple(f"option number {n}" for n in range(65_536))),))
        assert Survey.from_toml(survey.to_toml()) == survey


class TestWords:
    """Titles, texts and units: what people read in place of names."""

    def test_they_are_read_in_place_of_names(self):
        survey = Survey.from_toml(
            '''
name = "browser"
title = "What people use"
text = """
About your browser.

It takes a minute."""

[[question]]
name = "features"
title = "Features"
text = "Which of these do you use?"
kind = "flags"
options = ["sync", "vpn"]

[question.titles]
sync = "Sync across devices"

[[question]]
name = "age"
kind = "number"
edges = [18, 65]
unit = "years"
missing = "option"

[[question]]
name = "smokes"
kind = "yes/no"
titles = { yes = "I do", no = "I do not" }

[[cross]]
questions = ["features=sync", "smokes", "age"]
'''
        )
        assert survey.heading == "What people use"
        assert survey.text == "About your browser.\n\nIt takes a minute."
        features, age, smokes, cross = survey.questions
        assert features.heading == "Features"
        assert features.labels == ("sync", "vpn")
        assert features.shown_labels == ("Sync across devices", "vpn")
        years = ("below 18 years", "18 to below 65 years", "65 years and above", "(missing)")
        assert age.shown_labels == years
        assert smokes.shown_labels == ("I do",)
        assert cross.heading == "Features: Sync across devices by smokes by age"
        first = "Features: Sync across devices: yes, smokes: I do, below 18 years"
        assert cross.shown_labels[0] == first
        assert len(cross.shown_labels) == len(cross.labels)
        assert Survey.from_toml(survey.to_toml()) == survey

    def test_no_words_no_fields(self):
        plain = Flags("f", ("a", "b"))
        assert Flags("f", ("a", "b"), title="f", titles={"a": "a"}).to_json() == plain.to_json()
        survey = Survey("s", (plain,), title="s")
        assert survey.to_json() == {"name": "s", "questions": [plain.to_json()]}
        assert survey.digest == Survey("s", (plain,)).digest
        assert survey.digest != Survey("s", (plain,), title="t").digest

    def test_scripts_and_emoji(self):
        family = "\U0001f469\u200d\U0001f467 \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
        question = YesNo("y", title=family, text=family)
        assert (question.title, question.text) == (family, family)
        assert hash(question) != hash(YesNo("y"))


class TestOneForm:
    def test_names_are_kept_in_normal_form_c(self):
        """Else one survey has two plan ids, and a column is not found by its name."""
        composed, apart = "caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9")
        made = Survey(apart, (Flags(apart, (apart,)),))
        assert made == Survey(composed, (Flags(composed, (composed,)),))
        assert made.name == made.questions[0].name == made.questions[0].labels[0] == composed
        assert plan(made, q="0.25").id == plan(Survey.from_json(made.to_json()), q="0.25").id

    def test_names_that_look_alike_are_the_same_name(self):
        apart = unicodedata.normalize("NFD", "\u00e9")
        with pytest.raises(SurveyError, match="twice"):
            Survey("s", (Flags("\u00e9", ("a",)), Flags(apart, ("a",))))
        with pytest.raises(SurveyError, match="twice"):
            Flags("f", ("\u00e9", apart))

    def test_numpy_integers_are_integers(self):
        question = Flags("c", ("a", "b", "c"), at_most=np.int64(2))  # type: ignore[arg-type]
        assert type(question.to_json()["at_most"]) is int

    @given(surveys())
    @bounded(50)
    def test_round_trip(self, survey: Survey):
        assert Survey.from_json(survey.to_json()) == survey == Survey.from_toml(survey.to_toml())

    def test_text_and_odd_letters(self):
        survey = Survey(
            'a "name" \\ with #',
            (Text("word", bits=8, hashes=1, cohorts=2), Choice("c", ("'", "é"), missing="option")),
        )
        assert Survey.from_toml(survey.to_toml()) == survey


class TestFuzz:
    @given(mutated_bytes(MORE.encode()))
    @bounded(150)
    def test_broken_toml(self, content: bytes):
        _try(lambda: Survey.from_toml(content.decode("utf-8", "replace")))

    @pytest.mark.slow
    @given(mutated_json(Survey.from_toml(MORE).to_json()))
    @bounded(300)
    def test_mutated_json(self, document: object):
        _try(lambda: Survey.from_json(document))


def _try(parse: Any) -> None:
    """Either a survey that survives its own JSON, or a ShoalError."""
    try:
        survey = parse()
    except ShoalError:
        return
    assert Survey.from_json(survey.to_json()) == survey
