"""Who may import whom: privacy as an import rule, read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import shoal
from shoal import discovering

ROOT = Path(shoal.__file__).parent

DEVICE = {
    *("encoding", "randomizing", "reports", "lies", "plans", "survey", "vectors", "randomness"),
    *("_check", "_disk", "_files", "errors", "hashing", "questions", "accounts", "ledger"),
    *("memory", "sending", "promising", "discovering/layout"),
}
SERVER = {
    *("tallying", "estimating", "joint", "intervals", "combining", "counting", "anonymizing"),
    *("decoding", "laplace", "publishing", "collector", "console", "_tally_json"),
    *("associating", "screening", "_traces"),
    *("discovering/assembling", "discovering/confirming", "discovering/finding"),
}
HEAVY = {"scipy", "pyarrow", "pandas", "polars", "rich", "click", "opendp", "pyspark", "starlette"}


class Import(NamedTuple):
    importer: str  # path below src/shoal, without suffix
    module: str  # absolute, as far as it names a module
    at_module_level: bool


def imports_of(path: Path, source: str | None = None) -> list[Import]:
    """Every import in a file, those under TYPE_CHECKING left out."""
    tree = ast.parse(path.read_text("utf-8") if source is None else source)
    importer = str(path.relative_to(ROOT).with_suffix(""))
    package = ["shoal", *path.relative_to(ROOT).parts[:-1]]
    found: list[Import] = []

    def visit(node: ast.AST, level: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend(Import(importer, alias.name, level) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [base])])
            found.append(Import(importer, base, level))
            found.extend(Import(importer, f"{base}.{alias.name}", level) for alias in node.names)
        inner = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            visit(child, level and not inner)

    visit(tree, True)
    return found


FILES = sorted(ROOT.rglob("*.py"))
IMPORTS = [found for path in FILES for found in imports_of(path)]


def side(importer: str) -> str:
    """A module by its first name; by two where a package has a foot on either side."""
    return importer if importer in DEVICE | SERVER else importer.split("/")[0]


HOME = {name: home.replace(".", "/") for name, home in shoal._HOME.items()} | {
    f"discovering/{name}": f"discovering/{home}" for name, home in discovering._HOME.items()
}
"""`from shoal import encode` imports `encoding`, though it does not say so."""


def shoal_imports(found: Import) -> str | None:
    """The module of shoal that an import names: `shoal.encoding.encode` is `encoding`."""
    top, *parts = found.module.split(".")
    if top != "shoal" or not parts:
        return None
    first, two = HOME.get(parts[0], parts[0]), "/".join(parts[:2])
    two = HOME.get(two, two)
    return side(two) if two in DEVICE | SERVER else side(first)


def broken(rule) -> list[Import]:
    return [found for found in IMPORTS if rule(found)]


class TestRules:
    def test_theory_imports_numbers_only(self):
        allowed = {"numpy", "scipy", *sys.stdlib_module_names}

        def rule(found: Import) -> bool:
            if side(found.importer) != "theory":
                return False
            top = found.module.split(".")[0]
            if top == "shoal":
                return not found.module.startswith("shoal.theory")
            return top not in allowed

        assert broken(rule) == []

    def test_a_device_never_loads_heavy_libraries(self):
        assert (
            broken(
                lambda found: (
                    side(found.importer) in DEVICE
                    and found.at_module_level
                    and found.module.split(".")[0] in HEAVY
                )
            )
            == []
        )

    def test_a_device_never_imports_scipy_at_all(self):
        assert (
            broken(
                lambda found: (
                    side(found.importer) in DEVICE and found.module.split(".")[0] == "scipy"
                )
            )
            == []
        )

    def test_a_device_never_imports_the_server_side(self):
        assert (
            broken(lambda found: side(found.importer) in DEVICE and shoal_imports(found) in SERVER)
            == []
        )

    def test_the_server_side_never_imports_encoding_or_randomizing(self):
        assert (
            broken(
                lambda found: (
                    side(found.importer) in SERVER
                    and shoal_imports(found) in {"encoding", "randomizing", "simulating"}
                )
            )
            == []
        )

    def test_the_server_side_does_not_reach_them_through_others(self):
        """Follow module-level imports from each server-side module as far as they go."""
        graph: dict[str, set[str]] = {}
        for found in IMPORTS:
            part = shoal_imports(found)
            if found.at_module_level and part and part in {side(p) for p in map(_name, FILES)}:
                graph.setdefault(side(found.importer), set()).add(part)
        for start in SERVER & set(graph):
            reached, queue = set(), [start]
            while queue:
                here = queue.pop()
                if here not in reached:
                    reached.add(here)
                    queue += graph.get(here, ())
            assert not reached & {"encoding", "randomizing"}, start

    def test_one_door_to_random_bits(self):
        def rule(found: Import) -> bool:
            if found.importer == "randomness":
                return False
            top = found.module.split(".")[0]
            return top in {"secrets", "random"} or found.module.startswith(
                ("numpy.random", "os.urandom", "os.getrandom", "scipy.stats.qmc")
            )

        assert broken(rule) == []

    @pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
    def test_nobody_calls_another_generator(self, path: Path):
        """`np.random.x(...)`, `os.urandom(...)`, `uuid.uuid4()`, SciPy's `rvs` and the like."""
        if path.name == "randomness.py":
            return
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert not called.startswith(("np.random.", "numpy.random.", "secrets.", "random."))
                assert called not in {"os.urandom", "os.getrandom", "uuid.uuid4", "uuid.uuid1"}
                assert not called.endswith(".rvs")

    def test_nothing_imports_the_command_line(self):
        assert (
            broken(
                lambda found: (
                    side(found.importer) not in {"cli", "__main__"}
                    and shoal_imports(found) == "cli"
                )
            )
            == []
        )

    def test_only_the_spark_engine_imports_spark(self):
        assert (
            broken(
                lambda found: (
                    found.module.split(".")[0] == "pyspark" and found.importer != "engines/spark"
                )
            )
            == []
        )

    def test_no_star_imports(self):
        assert broken(lambda found: found.module.endswith(".*")) == []


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT).with_suffix(""))


class TestTheRulesCanFail:
    @pytest.mark.parametrize(
        ("at", "source"),
        [
            ("tallying.py", "from shoal.encoding import encode"),
            ("tallying.py", "from shoal import encode"),
            ("tallying.py", "from . import encoding"),
            ("tallying.py", "from .encoding import encode"),
            ("tallying.py", "import shoal.encoding"),
            ("tallying.py", "def f():\n    from shoal.encoding import encode"),
            ("collector/app.py", "from ..encoding import encode"),
        ],
    )
    def test_ways_to_import_encoding(self, at: str, source: str):
        found = imports_of(ROOT / at, source)
        assert any(shoal_imports(one) == "encoding" for one in found)

    @pytest.mark.parametrize(
        ("source", "part"),
        [
            ("from shoal import decode", "decoding"),
            ("from shoal import discover", "discovering/finding"),
            ("from shoal.discovering import discover", "discovering/finding"),
            ("from shoal.discovering.finding import discover", "discovering/finding"),
            ("from .discovering import layout_of", "discovering/layout"),
        ],
    )
    def test_a_package_on_both_sides_is_told_apart(self, source: str, part: str):
        assert part in {shoal_imports(one) for one in imports_of(ROOT / "encoding.py", source)}

    def test_type_checking_does_not_count(self):
        source = "if TYPE_CHECKING:\n    from shoal.encoding import encode"
        assert imports_of(ROOT / "tallying.py", source) == []


def loaded_after(statement: str) -> set[str]:
    script = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


class TestProcesses:
    def test_a_device_loads_only_its_side(self):
        loaded = loaded_after(
            "import shoal.encoding, shoal.randomizing, shoal.reports; from shoal import encode,"
            " randomize, pack_reports, Plan, Survey"
        )
        assert not loaded & {"scipy", "pyarrow", "pandas", "polars", "rich", "click"}
        assert not loaded & {f"shoal.{name}" for name in SERVER}
        assert "shoal.encoding" in loaded

    def test_a_device_works_without_them(self):
        """One answer all the way to the wire, and still nothing heavy is loaded."""
        loaded = loaded_after(
            "from shoal.survey import Survey, Flags; from shoal.plans import Plan, Promise;"
            " from shoal.lies import LieProbability; from shoal import encode, randomize,"
            " pack_reports;"
            " plan = Plan(Survey('s', (Flags('f', ('a', 'b')),)), LieProbability(1, 2),"
            " Promise('local', '2.2'));"
            " pack_reports(plan, randomize(encode(plan, {'f': ['a']}), plan)).to_bytes()"
        )
        assert not loaded & {"scipy", "pyarrow"}

    def test_the_server_loads_no_encoder(self):
        loaded = loaded_after("from shoal import tally, estimate, difference, Tally")
        assert not loaded & {"shoal.encoding", "shoal.randomizing"}

    def test_the_collector_loads_no_encoder(self):
        """Nor what sends reports, nor what checks a deployment; and settings need no server."""
        loaded = loaded_after("from shoal.collector import Collector, Settings, serve")
        assert {"shoal.collector.ingest", "shoal.collector.console"} <= loaded
        assert not loaded & {"shoal.encoding", "shoal.randomizing", "shoal.sending"}
        assert not loaded & {"shoal.simulating", "shoal.demonstrating", "shoal.collector.doctor"}
        loaded = loaded_after("from shoal.collector import Settings")
        assert not loaded & {"starlette", "uvicorn", "numpy", "scipy"}

    def test_the_doctor_needs_no_server(self):
        loaded = loaded_after("import shoal.collector.doctor")
        assert not loaded & {"starlette", "uvicorn", "scipy", "shoal.encoding"}

    def test_counting_a_file_of_reports_loads_no_encoder(self, tmp_path: Path):
        """`shoal tally` is the server side."""
        from shoal import Flags, Survey, plan

        plan(Survey("s", (Flags("f", ("a",)),)), q="0.25").write(tmp_path / "p.json")
        loaded = loaded_after(
            f"import shoal.cli; shoal.cli.run(['tally', {str(tmp_path / 'p.json')!r}, 'none'])"
        )
        assert "shoal.tallying" in loaded
        assert not loaded & {"shoal.encoding", "shoal.randomizing"}

    def test_help_is_instant(self):
        loaded = loaded_after("import shoal.cli")
        assert not loaded & {"numpy", "scipy", "pyarrow", "rich", "cryptography"}
        loaded = loaded_after("import shoal.cli; shoal.cli.run(['--version'])")
        assert not loaded & {"numpy", "scipy", "pyarrow", "rich", "cryptography"}
        assert loaded_after("import shoal") & {"numpy"} == set()
