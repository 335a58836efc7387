"""The study of coverage by the exact law (`python -m bench.coverage`), on its smallest crowds."""

from bench.coverage import same_crowd, singles, together, two_crowds
from bench.coverage_findings import LEVEL, Findings
from bench.coverage_tables import tables


def test_no_interval_called_a_theorem_covers_less_than_its_level():
    found = Findings()
    singles(found, (1, 3), ("0.001", "0.3"))
    for n, text in ((1, "0.3"), (3, "0.05")):
        same_crowd(found, ("exact", "normal"), n, text)
        together(found, n, text)
        tables(found, n, text)
    two_crowds(found, ("exact", "normal"), (2, "0.05"), (3, "0.3"))
    kinds = {kind for kind, _, _ in found.rows}
    assert kinds == {"exact", "simultaneous", "chebyshev", "normal"}
    for (kind, _, _), row in found.rows.items():
        assert row.cells > 0
        assert row.lowest >= LEVEL - 1e-9 or kind == "normal"
    assert len(list(found.lines())) == len(found.rows) + 2
