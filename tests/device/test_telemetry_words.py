"""Languages of the consent prompt, lines that fit a terminal, and yes words."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from shoal.device.telemetry.consent import Consent, is_yes
from shoal.device.telemetry.describe import (
    catalogue,
    english,
    language_of,
    read_translations,
    words_for,
)
from shoal.errors import InputError
from tests.device.telemetry_help import World

LANGUAGES = ("en", "de", "fr", "es", "ja")


class Terminal(io.StringIO):
    encoding = "utf-8"


class TestLanguages:
    def test_all_have_the_same_texts_and_fields(self):
        assert tuple(catalogue()) == LANGUAGES
        read_translations(catalogue())  # the check of a maintainer's own

    @pytest.mark.parametrize(
        ("environ", "language"),
        [
            ({}, "en"),
            ({"LANG": "de_AT.UTF-8"}, "de"),
            ({"LANG": "fr"}, "fr"),
            ({"LANG": "de_DE", "LC_MESSAGES": "es_ES@euro"}, "es"),
            ({"LANG": "de_DE", "LC_MESSAGES": "es_ES", "LC_ALL": "ja_JP.eucJP"}, "ja"),
            ({"LANG": "de_DE", "LC_ALL": "C.UTF-8"}, "en"),
            ({"LANG": "de_DE", "LC_ALL": ""}, "de"),
            ({"LANG": "POSIX"}, "en"),
        ],
    )
    def test_the_usual_variables(self, environ: dict[str, str], language: str):
        assert language_of(environ) == language

    def test_a_language_that_is_not_known_or_cannot_be_shown(self):
        narrow = Terminal()
        narrow.encoding = "latin-1"
        for environ, stream in (({"LANG": "nl_NL"}, Terminal()), ({"LANG": "ja_JP"}, narrow)):
            assert words_for(environ, {}, stream) == ("en", english())

    def test_a_language_that_a_maintainer_adds(self, tmp_path: Path):
        dutch = dict(english()) | {"prompt": "Versturen? [j/N/?]", "yes": ["j", "ja"]}
        file = tmp_path / "more.json"
        file.write_text(json.dumps({"nl": dutch}), "utf-8")
        for given_as in ({"nl": dutch}, file, str(file)):
            world = World(tmp_path, "https://a.example", translations=given_as)
            telemetry = world.tool(LANG="nl_NL.UTF-8")
            telemetry.check()
            assert Consent(telemetry, Terminal()).language == "nl"

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"prompt": None}, "needs a str 'prompt'"),
            ({"how": "{bits} bits"}, "'how', needs the fields bits, q"),
            ({"often": {"week": "x"}}, "'often', 'weeks', needs the fields count"),
            ({"extra": "x"}, "unknown field 'extra'"),
        ],
    )
    def test_a_translation_that_lacks_something(self, tmp_path, change: dict[str, Any], told: str):
        telemetry = World(
            tmp_path, "https://a.example", translations={"nl": dict(english()) | change}
        ).tool()
        with pytest.raises(InputError, match=told):
            telemetry.check()
        telemetry.record(command="c1")
        telemetry.flush()  # it is the maintainer's test that finds it

    @pytest.mark.parametrize("given_as", ["no such file", 3, {"nl": 3}])
    def test_what_is_no_translation(self, given_as: object):
        with pytest.raises(InputError, match="translation"):
            read_translations(given_as)


YES = {
    "en": ("y", "yes", "YES"),
    "de": ("j", "ja", "Ja"),
    "fr": ("o", "oui"),
    "es": ("s", "sí", "SÍ", "si\u0301"),
    "ja": ("はい", "y", "ｙ"),
}


class TestYes:
    @pytest.mark.parametrize("language", LANGUAGES)
    def test_words_of_the_language(self, language: str):
        for word in YES[language]:
            assert is_yes(f" {word}\n", catalogue()[language])
        for word in ("", "\n", "n", "no", "nein", "non", "いいえ", "?", "1", "yesno", "y y"):
            assert not is_yes(word, catalogue()[language])

    def test_words_of_another_language(self):
        for word in ("y", "yes", "o", "s", "はい"):
            assert not is_yes(word, catalogue()["de"])


class TestPrompt:
    def consent(self, tmp_path: Path, **options: Any) -> Consent:
        environ = options.pop("environ", {})
        return Consent(World(tmp_path, "https://a.example", **options).tool(**environ), Terminal())

    def test_three_sentences(self, tmp_path: Path):
        text = self.consent(tmp_path).text()
        assert text.count("\n") == 2
        for word in ("mytool", "one report a week", "command, platform, runs", "a.example"):
            assert word in text.split("\n")[0]
        assert "flipped at random with probability 1.526e-05" in text

    def test_the_maintainers_reason(self, tmp_path: Path):
        why = {"en": "We drop what nobody uses.", "de": "Wir streichen, was niemand nutzt."}
        assert "We drop what nobody uses." in self.consent(tmp_path, why=why).text()
        german = self.consent(tmp_path, why=why, environ={"LANG": "de_DE"})
        assert "Wir streichen, was niemand nutzt." in german.text()
        french = self.consent(tmp_path, why=why, environ={"LANG": "fr_FR"})
        assert why["en"] in french.text()
        assert "Only this." in self.consent(tmp_path, why="Only this.").text()

    def test_other_terms_than_before(self, tmp_path: Path):
        World(tmp_path, "https://b.example").say_yes()
        assert "have changed since you said yes" in self.consent(tmp_path).text()

    @pytest.mark.parametrize("language", LANGUAGES)
    def test_every_kind_of_question(self, tmp_path: Path, language: str):
        """No field is left, and labels of ours are translated."""
        from tests.device.test_telemetry import TestMerging

        for seconds in (3600, 86_400, 7 * 86_400, 3 * 86_400, 14 * 86_400, 7200, 5000):
            plan = TestMerging().telemetry(window=seconds)._plan
            consent = self.consent(tmp_path, plan=plan, environ={"LANG": language}, limit=900)
            text = consent.text() + consent.details()
            assert "{" not in text
            if language != "en":
                assert "(missing)" not in text
                assert "below" not in text
