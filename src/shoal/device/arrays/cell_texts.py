"""Usual ways to write cells: no answer, several options, numbers with units; and what to declare.

Nothing here decides how a table is read. `explain` names the declaration that would make an invalid
cell valid, and `column_kinds` proposes declarations.
"""

from __future__ import annotations

import json
import re
import unicodedata

from shoal.protocol.questions import Choice, Date, Flags, Number, Question, folded
from shoal.support.table_format import TableFormat

_NO_ANSWER = {
    *("na", "n/a", "#n/a", "#na", "<na>", "nan", "null", "(null)", "#null!", "nil", "n/d", "nd"),
    *("nc", "s/o", "so", "ka", "k/a", "missing", "(missing)", "blank", "(blank)", "empty"),
    *("not available", "not applicable", "no answer", "no response", "no data", "not stated"),
    *("not specified", "not provided", "leer", "(leer)", "keine angabe", "keine angaben"),
    *("ohne angabe", "keine antwort", "nicht angegeben", "entfällt", "vide", "(vide)"),
    *("non renseigné", "non renseignée", "sans réponse", "pas de réponse", "aucune réponse"),
    *("non disponible", "non applicable", "sans objet", "nessuna risposta", "sin respuesta"),
}
_MARKS = set("-\N{EN DASH}\N{EM DASH}.?/_")


def means_no_answer(text: str) -> bool:
    """Whether a text usually means that a person gave no answer."""
    if set(text) <= _MARKS:
        return True
    plain = folded(text).replace(".", "")
    return plain in _NO_ANSWER or plain.replace(" ", "") in _NO_ANSWER


SEPARATORS = (";", "|", "\n", ",", "/", " / ", " - ", "+", "&", "\t", "•", "·")
"""Between the options of one cell, most usual first."""

HOW_TO_DECLARE = "of the column"
"""In reasons that name a declaration of a column."""

_AROUND = re.compile(r"(?P<before>[^0-9]*)(?P<number>[0-9](?:.*[0-9])?)(?P<after>[^0-9]*)", re.S)
_SIGNS = "-+\N{MINUS SIGN}"
_DASHES = re.compile("[.,](?:--?|[\N{EN DASH}\N{EM DASH}])")


def digits_of(text: str) -> str:
    """Return a cell from its first to its last digit."""
    found = _AROUND.fullmatch(text)
    return "" if found is None else found["number"]


def units_of(text: str) -> tuple[str, ...]:
    """Return the currency before the digits of a cell, and the unit after them."""
    found = _AROUND.fullmatch(text.strip())
    if found is None:
        return ()
    before = found["before"].strip().strip(_SIGNS).strip()
    after = _DASHES.sub("", found["after"], count=1).strip()
    units = [one for one in (before, after) if one and one not in (".", ",")]
    usual = not before or is_usual_unit(before)
    return (
        tuple(units) if usual and (not after or after[0].isalpha() or is_usual_unit(after)) else ()
    )


def is_usual_unit(text: str) -> bool:
    """Whether a text is a currency or a percent sign, which tells nothing about a person."""
    return (
        text in ("%", "‰", "Fr", "Fr.", "SFr.", "Rs.", "kr", "kr.", "zł", "°", "°C")
        or any(unicodedata.category(one) == "Sc" for one in text[:3])
        or (len(text) == 3 and text.isascii() and text.isupper())
    )


_SPELLINGS = (
    *("chf fr sfr", "€ eur euro euros", "$ usd us$", "£ gbp", "¥ jpy", "₹ inr rs", "zł pln"),
    *("° °c", "s sec sek", "min mins minute minuten minutes", "mm", "cm", "m", "km", "g gr", "kg"),
    "h hr hrs std hour hours stunde stunden heure heures ore",
    "d day days tag tage jour jours giorni",
    "w week weeks woche wochen semaine semaines",
    "month months monat monate mois mesi",
    "y yr yrs year years jahr jahre an ans année années anno anni",
)
_UNITS = {one: group.split()[0] for group in _SPELLINGS for one in group.split()}


def known_unit(text: str) -> str | None:
    """Return the unit that a text is, in one spelling, or None if it is no well-known one."""
    plain = folded(text).rstrip(".")
    return _UNITS.get(plain, plain if is_usual_unit(text) else None)


def explain(question: Question, cell: object, table_format: TableFormat, why: str) -> str:
    """Return why a cell is invalid and what to declare, without the content of the cell."""
    if not isinstance(cell, str) or not (text := cell.strip()):
        return why
    if means_no_answer(text):
        return f"is a usual text for no answer; add {_quoted(text)} to missing {HOW_TO_DECLARE}"
    if isinstance(question, Number):
        return _explain_number(text, table_format, why)
    if isinstance(question, (Choice, Flags)):
        return _explain_options(question, text, table_format, why)
    if isinstance(question, Date):
        orders = [one for one in ("dmy", "mdy") if _with(table_format, dates=one).date(text)]
        if orders:
            choices = " or ".join(f'dates = "{order}"' for order in orders)
            return f"does not begin with a year; set {choices} {HOW_TO_DECLARE}"
    return why


def _explain_options(
    question: Choice | Flags, text: str, table_format: TableFormat, why: str
) -> str:
    options = {*map(folded, question.options)}
    several = isinstance(question, Flags)
    named = table_format.options(text) if several else [text]
    if all(question.place(one) is not None for one in named):
        return why  # too many, or one twice
    for separator in SEPARATORS:
        parts = [part.strip() for part in text.split(separator)]
        known = sum(folded(part) in options for part in parts)
        if several and separator != table_format.separator and 2 <= len(parts) <= 2 * known:
            sign = _quoted(separator)
            return f"contains {sign}; set separator = {sign} {HOW_TO_DECLARE}"
    if all(folded(one) in options for one in named):
        return "differs from an option in case or blanks; set fold = true in the question"
    return f"{why}; if others are allowed, set other = true in the question"


def _explain_number(text: str, table_format: TableFormat, why: str) -> str:
    other = {".": ",", ",": "."}[table_format.decimal]
    units = [unit for unit in units_of(text) if is_usual_unit(unit)]
    declared = [*table_format.units, *units]
    setting = f"set units = {_quoted(declared)}" if units else ""
    if why.startswith("can be"):
        return f"{why} {HOW_TO_DECLARE}"
    if _with(table_format, units=declared).number(text) is None:
        swapped = _with(table_format, units=declared, decimal=other, thousands="")
        if swapped.number(text) is None:
            return why
        setting += f'{" and" if units else "set"} decimal = "{other}"'
    problem = f"contains {_quoted(units[0])}" if units else "has another decimal sign"
    return f"{problem}; {setting} {HOW_TO_DECLARE}"


def _with(table_format: TableFormat, **changes: object) -> TableFormat:
    return table_format.replaced(**changes, columns={})


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
