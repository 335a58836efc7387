"""Questions whose answers are options with names: flags, choices, choice, and yes or no."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from shoal.errors import SurveyError
from shoal.protocol.questions import (
    MISSING,
    AskedQuestion,
    Part,
    check_missing,
    checked_sequence,
    keep,
)
from shoal.support.checks import check_integer, check_text, shown

__all__ = ["Choice", "Choices", "Flags", "YesNo", "folded"]

OTHER = "(other)"
"""The label of the option that `other = true` adds."""


def folded(text: str) -> str:
    """Return a text without its case, and with one blank for every run of white space.

    Upper case and then lower case, without a locale, is what every language has.

    >>> folded("  New  YORK ") == folded("new york"), folded("Straße") == folded("STRASSE")
    (True, True)
    """
    upper = unicodedata.normalize("NFC", " ".join(text.split())).upper()
    return unicodedata.normalize("NFC", upper.lower())


@dataclass(frozen=True)
class OptionsQuestion(AskedQuestion):
    """A question whose answers name options; with `fold`, whatever their case and blanks."""

    options: tuple[str, ...]
    fold: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, options=_checked_options(self.name, self.options, self._fewest_options))
        _check_switch(self.name, "fold", self.fold)
        if len(self.places) < len(self.options):
            alike = next(
                option
                for place, option in enumerate(self.options)
                if self.places[self._compared(option)] != place
            )
            raise SurveyError(
                f"question {self.name!r} has option {alike!r} twice when case and blanks are"
                " folded; options must differ."
            )

    @property
    def _fewest_options(self) -> int:
        return 1

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each option, by its name as answers are compared with it."""
        return {self._compared(option): place for place, option in enumerate(self.options)}

    def place(self, answer: str) -> int | None:
        """Return the place of the option that an answer names, or None."""
        return self.places.get(self._compared(answer))

    def _compared(self, text: str) -> str:
        return folded(text) if self.fold else unicodedata.normalize("NFC", text.strip())

    def to_json(self) -> dict[str, Any]:
        """Return the question as plain JSON values: what it declares."""
        fields = super().to_json() | {"options": list(self.options)}
        return fields | ({"fold": True} if self.fold else {})


@dataclass(frozen=True)
class Flags(OptionsQuestion):
    """Any number of the options may be set.

    >>> Flags("features", ("sync", "vpn", "reader")).differing_bits
    3
    """

    kind: ClassVar[str] = "flags"

    @property
    def labels(self) -> tuple[str, ...]:  # noqa: D102  inherited
        return self.options

    @property
    def parts(self) -> tuple[Part, ...]:  # noqa: D102  inherited
        return (Part(len(self.options), 0, len(self.options)),)


@dataclass(frozen=True)
class Choices(Flags):
    """At most `at_most` of the options may be set.

    >>> Choices("languages", ("en", "fr", "de", "it", "es"), at_most=2).differing_bits
    4
    """

    at_most: int = 1
    kind: ClassVar[str] = "choices"

    def __post_init__(self) -> None:
        super().__post_init__()
        name, most = f"at_most of question {self.name!r}", len(self.options)
        at_most = check_integer(name, self.at_most, lowest=1, highest=most, error=SurveyError)
        keep(self, at_most=at_most)

    @property
    def parts(self) -> tuple[Part, ...]:  # noqa: D102  inherited
        return (Part(len(self.options), 0, self.at_most),)

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        return super().to_json() | {"at_most": self.at_most}


@dataclass(frozen=True)
class Choice(OptionsQuestion):
    """Exactly one option is set.

    With `other` whatever is not listed is an option too, and with `missing="option"` no answer is.

    >>> Choice("browser", ("firefox", "chrome"), missing="option", other=True).labels
    ('firefox', 'chrome', '(other)', '(missing)')
    """

    missing: Literal["option"] | None = None
    other: bool = field(default=False, kw_only=True)
    kind: ClassVar[str] = "choice"

    def __post_init__(self) -> None:
        check_missing(self.name, self.missing)
        _check_switch(self.name, "other", self.other)
        super().__post_init__()

    @property
    def _fewest_options(self) -> int:
        return 1 if self.missing or self.other else 2

    @property
    def labels(self) -> tuple[str, ...]:  # noqa: D102  inherited
        other, missing = [OTHER] * self.other, [MISSING] * bool(self.missing)
        return (*self.options, *other, *missing)

    @property
    def parts(self) -> tuple[Part, ...]:  # noqa: D102  inherited
        return (Part(len(self.options) + self.other + bool(self.missing), 1, 1),)

    def place(self, answer: str) -> int | None:
        """Return the place of the option that an answer names; of `(other)`, or None."""
        listed = super().place(answer)
        return len(self.options) if listed is None and self.other else listed

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        fields = super().to_json() | ({"missing": self.missing} if self.missing else {})
        return fields | ({"other": True} if self.other else {})


@dataclass(frozen=True)
class YesNo(AskedQuestion):
    """Yes or no, as one bit that yes sets; with `missing="option"` a choice of three.

    >>> YesNo("smokes").differing_bits, YesNo("smokes", missing="option").labels
    (1, ('yes', 'no', '(missing)'))
    """

    missing: Literal["option"] | None = None
    kind: ClassVar[str] = "yes/no"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_missing(self.name, self.missing)

    @property
    def labels(self) -> tuple[str, ...]:  # noqa: D102  inherited
        return ("yes", "no", MISSING) if self.missing else ("yes",)

    @property
    def parts(self) -> tuple[Part, ...]:  # noqa: D102  inherited
        return (Part(3, 1, 1) if self.missing else Part(1, 0, 1),)

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        return super().to_json() | ({"missing": self.missing} if self.missing else {})


def _check_switch(question: str, name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise SurveyError(f"{name} of question {question!r} is true or false, got {shown(value)}.")


def _checked_options(question: str, options: object, fewest: int) -> tuple[str, ...]:
    listed = checked_sequence(f"options of question {question!r}", options)
    texts = tuple(
        check_text(f"option {i} of question {question!r}", option, error=SurveyError)
        for i, option in enumerate(listed, 1)
    )
    if len(texts) < fewest:
        raise SurveyError(f"question {question!r} needs at least {fewest} options.")
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise SurveyError(f"question {question!r} has option {twice!r} twice; options must differ.")
    for text in texts:
        # Several flags are in one cell of a table, separated by ";".
        if ";" in text or text in (MISSING, OTHER):
            raise SurveyError(
                f"option {text!r} of question {question!r} cannot be told apart in a table;"
                f" choose a name without ';' and other than {MISSING!r} and {OTHER!r}."
            )
    return texts
