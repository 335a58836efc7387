"""JSON from elsewhere, and texts from elsewhere in messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli import run
from shoal.errors import InputError
from shoal.support.files import first_line, printable, read_json, strict_json
from tests.strategies import bounded


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000, "[" * 100_000])
def test_deep_nesting_is_one_kind_of_wrong_json(content: bytes | str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        strict_json(content)
    if isinstance(content, bytes):
        (tmp_path / "deep").write_bytes(content)
        with pytest.raises(InputError, match="nested too deeply"):
            read_json(tmp_path / "deep", "tally", InputError)


@given(st.text())
@bounded(200)
def test_what_is_shown_cannot_steer_a_terminal(text: str) -> None:
    assert printable(text).isprintable()
    line = first_line(ValueError(text))
    assert line.isprintable()
    assert 0 < len(line) <= 300
    if text.isprintable():
        assert printable(text) == text


def test_every_error_of_a_command_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tally", "plan\x1b[2J.json", "reports\x9b.parquet"]) == 2
    assert capsys.readouterr().err.replace("\n", "").isprintable()
