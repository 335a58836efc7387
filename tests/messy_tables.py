"""Exports as people have them: mixed spellings, units, typing errors, totals, several languages."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Callable
from pathlib import Path
from random import Random

TOOLS = ("Excel", "Python", "R", "SQL", "Stata")
Cell = Callable[[Random, int], str]


def _money(draw: Random, sign: str, thousands: str, decimal: str) -> str:
    amount = f"{min(draw.gauss(5200, 1400), 11_000):,.2f}".replace(",", "\0").replace(".", decimal)
    return f"{sign} {amount}".replace("\0", thousands)


def _tools(draw: Random, between: str) -> str:
    chosen = draw.sample(TOOLS, draw.randint(0, 4))
    if draw.random() < 0.001:
        chosen.append(f"my own tool {draw.randint(1, 1000)}")
    return between.join(chosen)


def _day(draw: Random, order: str) -> str:
    day = datetime.date(2025, 1, 1) + datetime.timedelta(draw.randrange(365))
    return day.strftime(order)


def german(draw: Random, row: int) -> dict[str, str]:
    """A row with semicolons between cells, decimal commas, and the francs of Switzerland."""
    return {
        "Kunden-Nr.": str(100_000 + row),
        "E-Mail": f"kunde{row}@example.org",
        "Wie alt sind Sie?": draw.choice(["k.A.", "ca. 40", "5o"])
        if row % 997 == 5
        else str(draw.randint(18, 84)),
        "Monatslohn": "n/a" if row % 50 == 7 else _money(draw, "CHF", "'", "."),
        "Größe": f"{draw.gauss(172, 9):.1f}".replace(".", ",") + " cm",
        "Anteil": f"{draw.randint(0, 100)} %",
        "Werkzeuge": _tools(draw, " | "),
        "Raucher": draw.choice(["ja", "Ja", "JA ", "nein", "Nein", "\u00a0nein"]),
        "Kanton": draw.choices(["Zürich", "Bern", "Genève", f"Ort {row}"], [500, 400, 300, 1])[0],
        "Besuch": _day(draw, "%d.%m.%Y %H:%M"),
        "Bemerkung": "" if row % 3 else f"Im Fall {row} war es gut, danke für die Hefte.",
        "Note": str(draw.randint(1, 6)),
        "": draw.choice(["A", "B", "keine Angabe"]),
        "Note ": draw.choice(["gut", "mittel", "schlecht"]),
    }


def french(draw: Random, row: int) -> dict[str, str]:
    """A row with commas between cells, so that numbers with decimal commas are quoted."""
    return {
        "Identifiant": f"{draw.getrandbits(64):016x}",
        "Prénom": draw.choice(["Anne", "Luc", "Zoé"]),
        "Âge (années)": "" if row % 40 == 3 else str(draw.randint(18, 84)),
        "Loyer": f"{_money(draw, '', chr(0x202F), ',').strip()} €",
        "Outils\nutilisés": _tools(draw, "\n"),
        "Fumeur": draw.choice(["oui", "non", "Oui", "NON", "-"]),
        "Date": _day(draw, "%d/%m/%Y"),
        "Satisfaction": draw.choice(["très bien", "bien", "pas bien, hélas", "N/A"]),
    }


def american(draw: Random, row: int) -> dict[str, str]:
    """A row with tabs between cells."""
    return {
        "Response ID": f"R_{draw.getrandbits(60):x}",
        "Salary": "$" + _money(draw, "", ",", ".").strip(),
        "Tools": _tools(draw, ", "),
        "Start": _day(draw, "%m/%d/%Y 2:05 PM"),
        "Subscribed": draw.choice(["TRUE", "FALSE", "NA"]),
        "Rating": str(draw.randint(1, 5)),
        "Visits": str(int(draw.expovariate(0.05))),
    }


def table(people: int, row: Callable[[Random, int], dict[str, str]], seed: int) -> list[list[str]]:
    """Return the header and rows for people, with a few blank rows and a total."""
    draw = Random(seed)
    first = row(draw, 0)
    rows = [list(first), list(first.values())]
    for number in range(1, people):
        rows.append(list(row(draw, number).values()))
        if number % 4999 == 0:
            rows.append([""] * len(first))
    rows.append(["Total", *["" for _ in first][2:], str(people)])
    return rows


def write_csv(path: Path, rows: list[list[str]], delimiter: str, encoding: str) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerows(rows)
    path.write_bytes(text.getvalue().encode(encoding))
