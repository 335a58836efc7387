"""Lines that fit a width in columns, whatever letters they have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.support.results import width_of, wrapped


class TestLines:
    @given(
        st.text("ab はい、。（）é`-\u00a0", max_size=120),
        st.integers(4, 60),
        st.sampled_from(["", "  "]),
    )
    def test_no_line_is_too_long_and_nothing_is_lost(self, text: str, width: int, start: str):
        lines = wrapped(start + text, width).split("\n")
        joined = "".join(lines)
        assert joined.replace(" ", "") == text.replace(" ", "")
        assert all(width_of(line.rstrip(" ")) <= width for line in lines)

    def test_words_are_kept_whole_where_they_fit(self):
        text = "one two three four five"
        for width in range(5, 30):
            assert wrapped(text, width).split() == text.split()

    def test_no_line_begins_with_a_closing_sign(self):
        text = "送信しますか、（はい）と答えてください。" * 3
        for width in range(8, 40):
            for line in wrapped(text, width).split("\n"):
                assert line[0] not in "、。）"
                assert line[-1] != "（"
                assert width_of(line) <= width
