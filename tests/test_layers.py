"""Who may import whom: folders are trust domains, and every import in them is read.

Lazy imports count, those inside functions, those by `importlib`, and the names that `from shoal
import ...` loads from the table of public names. A folder or a module that the table does not
know is an error.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import shoal

ROOT = Path(shoal.__file__).parent


class Folder(NamedTuple):
    """What a folder may import: other folders of ours, and libraries."""

    folders: set[str]
    libraries: set[str]


NUMBERS = {"numpy", "scipy"}
ARROW = {"pyarrow"}
EVERYTHING = {"*"}

FOLDERS = {
    "support": Folder(set(), set()),
    "theory": Folder(set(), NUMBERS),
    "agreement": Folder({"support"}, {"cryptography", "pyhpke"}),
    "device": Folder({"support", "agreement"}, {"cryptography"}),
    "device/telemetry": Folder({"support", "agreement"}, {"click"}),
    "device/bulk": Folder({"support", "agreement"}, {"cryptography", "numpy"} | ARROW),
    "planning": Folder({"support", "agreement", "theory"}, NUMBERS),
    "analysis": Folder(
        {"support", "agreement", "planning", "theory"}, NUMBERS | ARROW | {"polars"}
    ),
    "curator": Folder({"support", "agreement", "analysis", "theory"}, NUMBERS | ARROW | {"opendp"}),
    "collector": Folder(
        {"support", "agreement", "planning", "analysis", "theory", "curator", "charts"},
        NUMBERS
        | ARROW
        | {"cryptography", "prometheus_client", "psycopg", "starlette", "httptools", "uvloop"},
    ),
    "charts": Folder(
        {"support", "agreement", "planning", "analysis", "theory"}, NUMBERS | {"matplotlib"}
    ),
    "engines": Folder({"support", "agreement", "analysis", "device"}, ARROW | {"pyspark"}),
    "evidence": Folder(EVERYTHING - {"cli"}, EVERYTHING),
    "cli": Folder(EVERYTHING, EVERYTHING),
}
ALONE = {"__init__", "__main__", "errors", "py"}
"""Modules beside the folders. Everybody may import `errors`."""

NOBODY_IMPORTS = {"cli", "evidence"}
"""But themselves, and `cli` everything."""

EXCEPTIONS = {
    ("device/outbox/plan_policy", "planning/promise"): "computes the promise where SciPy is there",
}

DYNAMIC = {
    "__init__",
    "cli/__init__",
    "cli/audit",
    "cli/collector/__init__",
    "collector/__init__",
    "collector/relay/__init__",
    "evidence/papers/__init__",
}
"""Where a module is imported by a name that is computed: tables of names, which are read below, and
a user's own function."""


class Import(NamedTuple):
    importer: str  # path below src/shoal, without suffix
    module: str  # dotted, as far as it names a module or a name in one


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports_of(path: Path, source: str | None = None) -> Iterator[Import]:
    """Every import of a file, those under TYPE_CHECKING left out."""
    text = path.read_text("utf-8") if source is None else source
    importer = str(path.relative_to(ROOT).with_suffix(""))
    package = ["shoal", *path.relative_to(ROOT).parts[:-1]]
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if is_type_checking(node):
            assert isinstance(node, ast.If)
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (Import(importer, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [base])])
            yield from (Import(importer, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call):
            yield from called_imports(importer, node)


def called_imports(importer: str, call: ast.Call) -> Iterator[Import]:
    """`importlib.import_module("...")`, `__import__("...")`, by whatever name."""
    name = ast.unparse(call.func)
    if name.split(".")[-1] in {"import_module", "__import__"}:
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield Import(importer, first.value)
        elif importer not in DYNAMIC:
            yield Import(importer, "shoal.<computed>")


FILES = sorted(ROOT.rglob("*.py"))
IMPORTS = [found for path in FILES for found in imports_of(path)]
PUBLIC: dict[str, str] = {
    name: home.replace(".", "/") for name, home in vars(shoal)["_HOME"].items()
}


def target(found: Import) -> str | None:
    """The module of ours that an import names, as a path; None for a library."""
    top, *parts = found.module.split(".")
    if top != "shoal":
        return None
    if parts and parts[0] in PUBLIC and not (ROOT / parts[0]).exists():
        return PUBLIC[parts[0]]
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        if path.with_suffix(".py").exists() or (path / "__init__.py").exists():
            return "/".join(parts[:length])
    if parts in ([], ["__version__"]):
        return "__init__"
    return parts[0]


def row_of(module: str) -> str:
    """The row of the table that a module has: that of its folder, or of the folder within."""
    inner = "/".join(module.split("/")[:2])
    return inner if inner in FOLDERS else module.split("/")[0]


def complaint(found: Import) -> str | None:
    """Say what is wrong with an import, or nothing."""
    folder = found.importer.split("/")[0]
    if folder in ALONE and "/" not in found.importer:
        return None
    if folder not in FOLDERS:
        return f"{found.importer}: folder {folder!r} is not in the table"
    allowed, module = FOLDERS[row_of(found.importer)], target(found)
    if module is None:
        library = found.module.split(".")[0]
        fine = library in sys.stdlib_module_names or {library, "*"} & allowed.libraries
        return None if fine else f"{found.importer} imports the library {library}"
    other = module.split("/")[0]
    if other in {folder, "errors", "__init__"} or (found.importer, module) in EXCEPTIONS:
        return None
    if other not in FOLDERS:
        return f"{found.importer} imports {found.module}, which is in no folder of the table"
    if folder == "cli" or ("*" in allowed.folders and other not in NOBODY_IMPORTS):
        return None
    return None if other in allowed.folders else f"{found.importer} imports {module}"


class TestFolders:
    def test_every_import_is_allowed(self):
        assert [wrong for found in IMPORTS if (wrong := complaint(found))] == []

    def test_every_module_is_in_a_folder_of_the_table(self):
        for path in ROOT.iterdir():
            if path.name != "__pycache__":
                assert path.name in FOLDERS if path.is_dir() else path.stem in ALONE

    def test_the_table_knows_no_folder_that_is_gone(self):
        assert {name for name in FOLDERS if not (ROOT / name / "__init__.py").exists()} == set()

    def test_exceptions_are_needed(self):
        made = {(found.importer, target(found)) for found in IMPORTS}
        assert set(EXCEPTIONS) <= made

    def test_public_names_have_their_home(self):
        for name, home in PUBLIC.items():
            path = ROOT / home
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            assert name in file.read_text("utf-8"), (name, home)

    def test_one_report_loads_nothing_of_many(self):
        """`device/bulk` is imported when it is asked for, within a function."""
        for path in FILES:
            assert not eager_bulk(path, path.read_text("utf-8")), path

    def test_no_star_imports(self):
        assert [found for found in IMPORTS if found.module.endswith(".*")] == []


def eager_bulk(path: Path, source: str) -> list[Import]:
    """What a file of the path of one report imports of `device/bulk` when it is imported itself."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [ast.Pass()]
    found = imports_of(path, ast.unparse(tree))
    small = {"support", "agreement", "device"}
    return [
        one
        for one in found
        if row_of(one.importer) in small and row_of(target(one) or "") == "device/bulk"
    ]


def wrong(at: str, source: str) -> list[str]:
    return [text for found in imports_of(ROOT / at, source) if (text := complaint(found))]


class TestTheTableCanFail:
    @pytest.mark.parametrize(
        "source",
        [
            "from shoal.device.encode import encode",
            "from shoal.device import encoding",
            "from shoal import encode",
            "from shoal import device",
            "import shoal.device.encode",
            "def f():\n    from shoal.device.encode import encode",
            "def f():\n    def g():\n        import shoal.device",
            "class C:\n    from shoal import randomize",
            "import importlib\nimportlib.import_module('shoal.device.encode')",
            "from importlib import import_module\ndef f():\n    import_module('shoal.device')",
            "from importlib import import_module\ndef f(x):\n    import_module(f'shoal.{x}')",
            "__import__('shoal.device.encode')",
            "from ..device.encoding import encode",
            "try:\n    from shoal.lab import simulation\nexcept ImportError:\n    pass",
            "from shoal import simulate",
            "from shoal.cli import run",
        ],
    )
    def test_the_collector_reaches_no_device(self, source: str):
        assert wrong("server/collector/service.py", source)

    @pytest.mark.parametrize(
        ("at", "source"),
        [
            ("device/encode.py", "import scipy"),
            ("device/encode.py", "def f():\n    from scipy.special import bdtr"),
            ("device/encode.py", "from shoal.analysis.tally import tally"),
            ("device/encode.py", "from shoal import tally"),
            ("device/outbox/http.py", "from shoal.planning.certificate import check_promise"),
            ("device/encode.py", "import numpy as np"),
            ("device/outbox/outbox.py", "def f():\n    import pyarrow"),
            ("device/arrays/encode.py", "import scipy"),
            ("protocol/plan.py", "import numpy as np"),
            ("protocol/plan.py", "from shoal.device.encode import encode"),
            ("analysis/tally.py", "from shoal import encode"),
            ("analysis/tally.py", "from shoal.reports.plots import save"),
            ("analysis/tally.py", "from shoal.lab import simulation"),
            ("planning/plan.py", "from shoal.analysis.intervals import interval"),
            ("theory/randomized_response.py", "from shoal.support.rounding import round_up"),
            ("theory/randomized_response.py", "import dp_accounting"),
            ("support/files.py", "from shoal.protocol.plan import Plan"),
            ("lab/study.py", "from shoal.cli import run"),
            ("elsewhere/new.py", "import math"),
            ("analysis/tally.py", "from shoal.elsewhere import thing"),
        ],
    )
    def test_other_walls(self, at: str, source: str):
        assert wrong(at, source)

    def test_an_eager_import_of_many_is_seen(self):
        path, source = ROOT / "device/encode.py", "from shoal.device.arrays.encode import x"
        assert eager_bulk(path, source)
        assert eager_bulk(path, "from shoal import Original")
        assert not eager_bulk(path, f"def f():\n    {source}")
        assert not eager_bulk(ROOT / "device/arrays/encode.py", source)

    def test_type_checking_does_not_count(self):
        source = "if TYPE_CHECKING:\n    from shoal.device.encode import encode"
        assert wrong("analysis/tally.py", source) == []

    def test_a_right_import_is_right(self):
        assert wrong("analysis/tally.py", "from shoal.protocol.plan import Plan") == []


class TestRandomBits:
    """One door, and another one for people who do not exist."""

    DOORS = ("agreement/random_bits", "evidence/simulation_bits")

    def test_nobody_imports_another_generator(self):
        generators = ("secrets", "random", "numpy.random", "os.urandom", "os.getrandom")
        for found in IMPORTS:
            if found.importer not in self.DOORS:
                names = {found.module, found.module.rpartition(".")[0]}
                assert not names & set(generators), found

    @pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
    def test_nobody_calls_another_generator(self, path: Path):
        """`np.random.x(...)`, `os.urandom(...)`, `uuid.uuid4()`, SciPy's `rvs` and the like."""
        if str(path.relative_to(ROOT).with_suffix("")) in self.DOORS:
            return
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert not called.startswith(("np.random.", "numpy.random.", "secrets.", "random."))
                assert called not in {"os.urandom", "os.getrandom", "uuid.uuid4", "uuid.uuid1"}
                assert not called.endswith(".rvs")


def loaded_after(statement: str) -> set[str]:
    """The modules that a new process has loaded after a statement."""
    script = f"import sys\n{statement}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def folders_of(loaded: set[str]) -> set[str]:
    return {name.split(".")[1] for name in loaded if name.startswith("shoal.")}


HEAVY = {"numpy", "scipy", "pyarrow", "pandas", "polars", "rich", "click"}

ONE_REPORT = (
    "from shoal.protocol.survey import Survey, Flags; from shoal import Plan, Promise;"
    " from shoal import FlipProbability, encode, randomize, pack_reports;"
    " plan = Plan(Survey('s', (Flags('f', ('a', 'b')),)), FlipProbability(1, 2),"
    " Promise('local', '2.2'));"
    " pack_reports(plan, randomize(encode(plan, {'f': ['a']}), plan)).to_bytes()"
)

WHOLE_DEVICE = """
import tempfile
from pathlib import Path
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Plan, Promise
from shoal.protocol.survey import Choice, Choices, Flags, Number, Survey, Text
from shoal.device.ledger import Ledger
from shoal.device.memory import DeviceMemory
from shoal.device.outbox import HttpTransport, Outbox, Reply

folder, posted = Path(tempfile.mkdtemp()), []

class Transport:
    def fetch_plan(self, plan_id): raise OSError
    def post_report(self, plan_id, content):
        posted.append(content)
        return Reply(202)

q, local = FlipProbability(23003, 16), Promise("local", "100")
questions = (Flags("f", ("a", "b")), Choice("c", ("x", "y"), "option"), Number("n", (1, 2)),
             Choices("m", ("u", "v", "w"), 2))
answer = {"f": ["a"], "c": None, "n": 1.5, "m": "u;w"}
text = Plan(Survey("t", (*questions, Text("t", 64, 2, 8))), q, local)
memory = Memory(FlipProbability(1, 3), FlipProbability(1, 3))
kept = Plan(Survey("k", questions), memory.q, local, memory=memory, window=86_400)
outbox = Outbox(folder / "outbox", Transport(), spread=0, ledger=Ledger(folder / "ledger"),
                memory=DeviceMemory(folder / "memory", bytes(range(32))))
outbox.answer(text, answer | {"t": "shoal"})
outbox.answer(kept, answer)
states = [ticket.state for ticket in outbox.send_due(hurry=True)]
assert states == ["sent", "sent"], states
assert sorted(map(len, posted)) == [42 + 20 + 2, 42 + 20 + 2 + 10], posted
HttpTransport("https://collector.example")
"""


SLOW_TO_LOAD = {
    "base64", "collections", "contextlib", "dataclasses", "decimal", "email", "enum", "functools",
    "hashlib", "http", "inspect", "json", "pathlib", "re", "socket", "ssl", "typing", "urllib",
}  # fmt: skip
"""What takes longer to load than all our modules that need it."""


class TestProcesses:
    @pytest.mark.parametrize("script", [ONE_REPORT, WHOLE_DEVICE], ids=["verbs", "outbox"])
    def test_a_device_loads_only_its_side(self, script: str):
        """One answer all the way to the wire, with memory, ledger and outbox."""
        loaded = loaded_after(script)
        assert not loaded & HEAVY
        assert folders_of(loaded) == {"agreement", "device", "errors", "support"}
        assert not {name for name in loaded if name.startswith("shoal.device.arrays")}

    def test_importing_a_device_loads_little(self):
        """Its own modules, and of the standard library only what Python loads in a moment."""
        modules = "encoding randomizing packing ledger memory outbox outbox.http"
        loaded = loaded_after("".join(f"import shoal.device.{name}\n" for name in modules.split()))
        assert "shoal.protocol.plan" in loaded
        assert not loaded & SLOW_TO_LOAD

    def test_a_device_needs_no_numpy(self):
        """The whole of it runs where NumPy, SciPy and pyarrow cannot be imported."""
        blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in sorted(HEAVY))
        loaded = loaded_after(f"\n{blocked}\n{WHOLE_DEVICE}")
        modules = {name for name in loaded if name.startswith("shoal.")}
        assert {"shoal.device.outbox.http", "shoal.device.memory"} <= modules
        alone = "".join(f"import {name}\n" for name in sorted(modules))
        assert modules <= loaded_after(f"\n{blocked}\n{alone}")

    def test_the_server_side_loads_no_device(self):
        loaded = loaded_after("from shoal import tally, estimate, difference, Tally, publish")
        assert "analysis" in folders_of(loaded)
        assert not folders_of(loaded) & {"device", "evidence", "cli"}

    def test_the_collector_loads_no_device(self):
        """Nor what checks a deployment; and settings need no server."""
        loaded = loaded_after("from shoal.server import Collector, Settings, serve")
        assert {"shoal.server.collector.ingest", "shoal.server.console.app"} <= loaded
        assert not folders_of(loaded) & {"device", "evidence", "cli"}
        assert "shoal.server.doctor" not in loaded
        loaded = loaded_after("from shoal.server import Settings")
        assert not loaded & {"starlette", "httptools", "numpy", "scipy"}

    def test_the_doctor_needs_no_server(self):
        loaded = loaded_after("import shoal.server.doctor.examine")
        assert not loaded & {"starlette", "httptools", "scipy"}
        assert "device" not in folders_of(loaded)

    def test_counting_a_file_of_reports_loads_no_device(self, tmp_path: Path):
        """`shoal tally` is the server side."""
        from shoal import Flags, Survey, plan

        plan(Survey("s", (Flags("f", ("a",)),)), q="0.25").write(tmp_path / "p.json")
        loaded = loaded_after(
            f"import shoal.cli; shoal.cli.run(['tally', {str(tmp_path / 'p.json')!r}, 'none'])"
        )
        assert "shoal.analysis.tally" in loaded
        assert "device" not in folders_of(loaded)

    def test_small_commands_load_no_scipy(self, tmp_path: Path):
        """It takes half a second, and neither a plan with a given q nor an estimate needs it."""
        import numpy as np

        from shoal import Flags, Survey, plan, tally
        from shoal.protocol.wire import Synthetic

        agreed = plan(Survey("s", (Flags("f", ("a",)),)), q="0.25")
        files = [str(tmp_path / name) for name in ("p.json", "t.json")]
        agreed.write(files[0])
        tally(agreed, Synthetic(np.ones((200, 1), np.uint8), bits=1)).write(files[1])
        for words in (["plan", "--flags", "5", "--q", "0.2"], ["estimate", *files]):
            loaded = loaded_after(f"import shoal.cli; assert shoal.cli.run({words!r}) == 0")
            assert "scipy" not in loaded

    def test_help_is_instant(self):
        loaded = loaded_after("import shoal.cli")
        assert not loaded & {"numpy", "scipy", "pyarrow", "rich", "cryptography"}
        loaded = loaded_after("import shoal.cli; shoal.cli.run(['--version'])")
        assert not loaded & {"numpy", "scipy", "pyarrow", "rich", "cryptography"}
        assert loaded_after("import shoal") & {"numpy"} == set()
