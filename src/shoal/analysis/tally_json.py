"""Read a tally from JSON: every count is checked against every other."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from shoal.analysis.crowds import check_people, parse_crowds
from shoal.analysis.joint import MAX_JOINT_BITS, Bits, Counts, checked_bits
from shoal.analysis.tally import CohortCounts, Tally
from shoal.errors import PrivacyRefusal, TallyError
from shoal.protocol.plan import Plan
from shoal.protocol.wire import check_rows, row_bytes
from shoal.support.checks import MAX_INTEGER, check_integer, exact_fields
from shoal.support.files import canonical_json

_FIELDS = {
    *("plan", "reports", "simulated", "by_bit", "by_set_bits"),
    *("by_vector", "joint", "cohorts", "crowds", "people"),
}


def parse_file(document: object, plan: Plan) -> Tally:
    """Read a tally, or the one in a collector's document of a released crowd.

    The document's SHA-256 is over the tally's canonical JSON, so a tally that was changed on the
    way is an error here and not a wrong number later.
    """
    if not isinstance(document, Mapping) or not {"tally", "sha256"} <= set(document):
        return parse_tally(document, plan)
    tally = parse_tally(document["tally"], plan)
    if hashlib.sha256(canonical_json(document["tally"])).hexdigest() != document["sha256"]:
        raise TallyError("the crowd's tally does not match its SHA-256; fetch it again.")
    return tally


def parse_tally(document: object, plan: Plan) -> Tally:
    document = exact_fields("a tally", document, _FIELDS, error=TallyError)
    if document["plan"] != plan.id:
        raise TallyError(f"the tally is of another plan, not of {plan.id[:12]}.")
    if not isinstance(document["simulated"], bool):
        raise TallyError("simulated must be true or false.")
    reports = check_integer("reports", document["reports"], lowest=0, error=TallyError)
    possible = plan.possible_counts(reports)
    by_bit = _counts("by_bit", document["by_bit"], plan.bits, possible[1], possible[0])
    if plan.view == "counts":
        _refuse_links(document)
    by_set_bits = _parse_set_bits(document["by_set_bits"], plan, by_bit, reports)
    vectors = _parse_vectors(document["by_vector"], plan)
    joint = _parse_joint(document["joint"], plan, reports)
    cohorts = _parse_cohorts(document["cohorts"], plan)
    marked = document["simulated"]
    crowds, people = parse_crowds(document["crowds"]), check_people(document["people"])
    if sum(crowd.reports for crowd in crowds) != reports:
        raise TallyError("the crowds' reports do not add up to the number of reports.")
    counts = (by_bit, by_set_bits, vectors, joint)
    read = Tally(plan.id, reports, *counts, marked, cohorts, crowds, people)
    _check_agreement(read)
    return read


def _refuse_links(document: Mapping[str, object]) -> None:
    """Refuse counts that link the bits of one report, empty ones too."""
    absent: dict[str, object] = {"by_set_bits": None, "by_vector": None, "joint": []}
    links = [name for name, nothing in absent.items() if document[name] != nothing]
    if links:
        raise PrivacyRefusal(
            "the plan's view is counts, and its noise protects nothing but the counts of single"
            f" bits; the tally also has {' and '.join(links)}, so delete it and do not publish it."
        )


def _parse_set_bits(value: object, plan: Plan, by_bit: Counts, reports: int) -> Counts | None:
    if plan.view == "counts":
        return None
    by_set_bits = _counts("by_set_bits", value, plan.bits + 1, reports)
    set_bits = sum(place * count for place, count in enumerate(by_set_bits.tolist()))
    if sum(by_set_bits.tolist()) != reports or set_bits != sum(by_bit.tolist()):
        raise TallyError("the counts by bit and by set bits are not of the same reports.")
    return by_set_bits


def _parse_cohorts(value: object, plan: Plan) -> tuple[CohortCounts, ...] | None:
    message = f'cohorts must be {plan.cohorts or "null"} objects of "reports" and "by_bit".'
    if plan.cohorts is None:
        if value is not None:
            raise TallyError("the plan has no cohorts, so cohorts must be null.")
        return None
    if not isinstance(value, list) or len(value) != plan.cohorts:
        raise TallyError(message)
    counted = []
    for entry in value:
        entry = exact_fields("a cohort", entry, {"reports", "by_bit"}, error=TallyError)
        reports = check_integer("reports of a cohort", entry["reports"], lowest=0, error=TallyError)
        by_bit = _counts("by_bit of a cohort", entry["by_bit"], plan.bits, reports)
        counted.append(CohortCounts(reports, by_bit))
    return tuple(counted)


def _check_agreement(read: Tally) -> None:
    """Refuse counts that cannot be of the same reports; sums are exact, whatever their size."""
    for bits, table in read.joint.items():
        cells = list(enumerate(table.tolist()))
        ones = [sum(n for cell, n in cells if cell >> place & 1) for place in range(len(bits))]
        if sum(n for _, n in cells) != read.reports or ones != read.by_bit[list(bits)].tolist():
            raise TallyError("the counts by bit and the joint counts are not of the same reports.")
    if read.cohorts is not None:
        by_bit = np.sum([cohort.by_bit for cohort in read.cohorts], axis=0, dtype=object)
        reports = sum(cohort.reports for cohort in read.cohorts)
        if reports != read.reports or by_bit.tolist() != read.by_bit.tolist():
            raise TallyError("the cohorts' counts do not add up to those of all reports.")
    if read.by_vector is None:
        return
    width = row_bytes(read.bits)
    rows = np.frombuffer(bytes.fromhex("".join(read.by_vector)), np.uint8).reshape(-1, width)
    counts = np.array(list(read.by_vector.values()), np.int64)
    if sum(counts.tolist()) != read.reports:
        raise TallyError("the counts by vector do not add up to the number of reports.")
    vectors = np.unpackbits(rows, axis=1, count=read.bits, bitorder="little").astype(np.int64)
    by_set_bits = np.zeros(read.bits + 1, np.int64)
    np.add.at(by_set_bits, vectors.sum(axis=1), counts)
    same_bits = (counts @ vectors == read.by_bit).all()
    same_joint = all(
        (replace(read, joint={}).joint_counts(bits) == table).all()
        for bits, table in read.joint.items()
    )
    assert read.by_set_bits is not None  # a tally with vectors has them
    same_set_bits = np.array_equal(by_set_bits, read.by_set_bits)
    if not (same_bits and same_joint and same_set_bits):
        raise TallyError("the counts by vector are not of the same reports as the others.")


def _counts(name: str, value: object, length: int, highest: int, lowest: int = 0) -> Counts:
    if not isinstance(value, list) or len(value) != length:
        raise TallyError(f"{name} must be a list of {length} counts.")
    checked = [check_integer(f"a count {name}", v, lowest=lowest, error=TallyError) for v in value]
    counts = np.array(checked, np.int64)
    if int(counts.max()) > min(highest, MAX_INTEGER):
        most = f"the number of reports{' and the noise' if lowest else ''}, {highest}"
        raise TallyError(f"a count {name} is larger than {most}.")
    return counts


def _parse_vectors(value: object, plan: Plan) -> dict[str, int] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TallyError("by_vector must map vectors to counts, or be null.")
    digits = 2 * row_bytes(plan.bits)
    if not all(re.fullmatch(f"[0-9a-f]{{{digits}}}", str(key)) for key in value):
        raise TallyError(f"a vector must be {digits} hexadecimal digits.")
    rows = np.frombuffer(bytes.fromhex("".join(value)), np.uint8).reshape(-1, digits // 2)
    check_rows(rows, plan.bits, error=TallyError)
    return {
        key: check_integer("a count by_vector", value[key], lowest=1, error=TallyError)
        for key in sorted(value)
    }


def _parse_joint(value: object, plan: Plan, reports: int) -> dict[Bits, Counts]:
    message = 'joint must be a list of {"bits": [...], "counts": [...]}.'
    if not isinstance(value, list):
        raise TallyError(message)
    tables: dict[Bits, Counts] = {}
    for entry in value:
        entry = exact_fields("a joint count", entry, {"bits", "counts"}, error=TallyError)
        if not isinstance(entry["bits"], list) or len(entry["bits"]) > MAX_JOINT_BITS:
            raise TallyError(message)
        try:
            bits = checked_bits(entry["bits"], plan.bits)
        except ValueError as error:
            raise TallyError(str(error)) from error
        if bits in tables:
            raise TallyError(f"the joint counts of bits {list(bits)} are listed twice.")
        tables[bits] = _counts("joint", entry["counts"], 1 << len(bits), reports)
    return tables
