"""Numbers and times on the command line, as people write them: 1e6, 5%, .005, 1d."""

from __future__ import annotations

from typing import Any

import click

from shoal.errors import InputError
from shoal.support.checks import decimal_text, seconds, whole_number

__all__ = ["DECIMAL", "LENGTH", "WHOLE"]


class _Whole(click.ParamType[int]):
    name = "integer"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        try:
            return whole_number(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


class _Decimal(click.ParamType[float]):
    name = "float"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        if value.strip().lower() in ("nan", "inf", "-inf", "infinity"):
            return float(value)  # the function that takes it says what is allowed
        try:
            return float(decimal_text(value))
        except InputError as error:
            self.fail(str(error), param, ctx)


class _Length(click.ParamType[int]):
    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        try:
            return seconds(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


WHOLE, DECIMAL, LENGTH = _Whole(), _Decimal(), _Length()
