"""Random surveys and answers, as plain JSON values, from a seed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

Json = dict[str, Any]

LETTERS = "abcXYZ ßñéİıΣσςǅﬁÅ1٣日𝒳_=-.\u00a0\u2003\u0085\u001c\ufeff"
COMBINING = ("e\u0301", "A\u030a", "\u1112\u1161\u11ab")


def text(random: Random, longest: int = 6) -> str:
    parts = random.choices([*LETTERS, *COMBINING], k=random.randint(0, longest))
    return "".join(parts)


def name(random: Random, number: int) -> str:
    """Return a name that a survey takes: printable, without blanks at its ends, not used before."""
    import unicodedata

    middle = "".join(c for c in text(random) if c.isprintable() and c not in "=;").strip()
    return unicodedata.normalize("NFC", f"{middle}{number}")


def options(random: Random) -> list[str]:
    return [name(random, place) for place in range(random.randint(2, 6))]


def question(random: Random, number: int, cohorts: int) -> Json:
    kind = random.choice(["flags", "choice", "at most", "yes/no", "number", "text"])
    asked: Json = {"kind": "flags" if kind == "at most" else kind, "name": name(random, number)}
    if kind in ("flags", "choice", "at most"):
        asked["options"] = options(random)
        if random.random() < 0.3:
            asked["fold"] = True
    if kind == "at most":
        asked["at_most"] = random.randint(1, len(asked["options"]))
    if kind in ("choice", "yes/no", "number") and random.random() < 0.5:
        asked["missing"] = "option"
    if kind in ("flags", "choice", "at most") and random.random() < 0.3:
        asked["other"] = True
    if kind == "number":
        edges = sorted({random.choice([-3, 0, 0.1, 1e-7, 2.5, 10, 1e6, 12345.678]) for _ in "abc"})
        asked["edges"] = [f"{edge:.10f}".rstrip("0").rstrip(".") for edge in edges]
    if kind == "text":
        bits = random.choice([1, 3, 16, 64, 1000])
        asked |= {"bits": bits, "hashes": random.randint(1, min(bits, 8)), "cohorts": cohorts}
        if random.random() < 0.5:
            alphabet = "".join(random.sample("abcdeéß日𝒳", random.randint(1, 5)))
            asked["pairs"] = {"alphabet": alphabet, "length": 4}
    if random.random() < 0.3:
        add_words(random, asked)
    return asked


def add_words(random: Random, asked: Json) -> None:
    """Add what people read in place of names, which decides no bit."""
    asked |= {"title": f"{name(random, 0)} <b>", "text": "Which of\nthese, \u05d0\u05d1\u05d2?"}
    if asked["kind"] == "number":
        asked["unit"] = "km/h"
    elif asked["kind"] != "text":
        asked["titles"] = {one: f"\U0001f41f {one}" for one in asked.get("options", ["yes", "no"])}


def crossed(random: Random, asked: list[Json]) -> Json | None:
    sides = []
    for one in asked:
        if one["kind"] in ("choice", "number", "yes/no"):
            sides.append(one["name"])
        elif one["kind"] == "flags" and "at_most" not in one:
            sides.append(f"{one['name']}={random.choice(one['options'])}")
    if len(sides) < 2:
        return None
    chosen = random.sample(sides, 2)
    return {"kind": "cross", "name": " x ".join(chosen), "questions": chosen}


def survey(random: Random) -> Json:
    cohorts = random.choice([3, 6, 300])  # multiples of the pairs of four letters
    asked = [question(random, number, cohorts) for number in range(random.randint(1, 4))]
    cross = crossed(random, asked)
    return {"name": name(random, 0), "questions": [*asked, cross] if cross else asked}


def answer(random: Random, asked: Json) -> Any:
    """Return an answer, mostly one that the question takes."""
    if random.random() < 0.08:
        return random.choice([None, "", " ", "\u3000", True, 7, 2.5, [], ["a"], [None], {}, "a;b"])
    listed = asked.get("options", [])
    written = [f" {one}\u2003" if random.random() < 0.2 else one for one in listed]
    written = [one.upper() if random.random() < 0.1 else one for one in written]
    match asked["kind"]:
        case "flags":
            most = asked.get("at_most", len(written)) + (random.random() < 0.1)
            chosen = random.sample(written, min(random.randint(0, most), len(written)))
            return ";".join(chosen) if random.random() < 0.3 else chosen
        case "choice":
            return random.choice([*written, text(random)])
        case "yes/no":
            return random.choice(["yes", "No", " TRUE", False, True, 1, 0, "1", "maybe"])
        case "number":
            number = random.choice([0, -3, 2.5, 10, 1e6, random.uniform(-5, 20), 1e300])
            spelled = [str(number), f" {number:.3e} ", f"+{abs(number)}", "1e", "0x1", ".5", "7."]
            return random.choice([number, number, *spelled, "1_0", "inf", "nan"])
        case _:
            return random.choice([text(random, 9), "ab", "𝒳日", None])


def cases(count: int, seed: int) -> list[Json]:
    """Return so many surveys, each with an answer and a cohort."""
    random = Random(seed)
    made = []
    for _ in range(count):
        asked = survey(random)
        answers = {
            one["name"]: answer(random, one)
            for one in asked["questions"]
            if one["kind"] != "cross" and random.random() < 0.97
        }
        if random.random() < 0.01:
            answers["nobody asked"] = 1
        cohorts = next((one["cohorts"] for one in asked["questions"] if "cohorts" in one), None)
        cohort = None if cohorts is None else random.randrange(cohorts)
        # Whole numbers are whole numbers in either language: JavaScript cannot tell 10 from 10.0.
        plain = json.loads(json.dumps(answers), parse_float=_shortest)
        made.append({"survey": asked, "answers": plain, "cohort": cohort})
    return made


def _shortest(digits: str) -> int | float:
    number = float(digits)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
