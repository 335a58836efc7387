"""The two distributions: `shoal-device`, and `shoal`, which brings the rest."""

from __future__ import annotations

import platform
import re
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import urllib.request
import venv
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

import shoal
from shoal import Flags, Plan, Survey
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from tests.build_distributions import build
from tests.server.serving_help import clean_environment, served
from tests.whole_way import PEOPLE, whole_way

ROOT = Path(__file__).parent.parent
LIGHT = ROOT / "packages" / "shoal-device"
CLIENT = "shoal/lab/web_demo/client"
"""Where the client for web pages is installed."""
MOST_BYTES = 1_000_000
"""What the light device may take installed, without `cryptography`."""

PLAN = Plan(
    Survey("tool", (Flags("commands", ("build", "test")),)),
    FlipProbability(1, 2),
    Promise("local", "2.2"),
    crowd_size=2,
)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels, built with nothing but what is installed here."""
    folder = tmp_path_factory.mktemp("wheels")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder)]
    done = subprocess.run([*command, ROOT, LIGHT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {path.name.split("-")[0]: path for path in folder.iterdir()}


def python_with(folder: Path, *words: str) -> Path:
    """Make a Python with what pip installs by these words, without asking an index."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    command += ["--no-index", "--no-compile", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return python


@pytest.fixture(scope="module")
def clean_python(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with nothing but the light device."""
    return python_with(tmp_path_factory.mktemp("clean") / "venv", str(wheels["shoal_device"]))


def run_clean(python: Path, script: str, *words: str) -> str:
    """Run a script where only the light device is installed; warnings are errors there too."""
    command = [str(python), "-I", "-W", "error", "-c", script, *words]
    environment = clean_environment()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_of(wheel: Path) -> dict[str, int]:
    """What a wheel puts into `shoal`, with the bytes of each."""
    return {
        entry.filename: entry.file_size
        for entry in ZipFile(wheel).infolist()
        if entry.filename.startswith("shoal/")
    }


class TestWheels:
    def test_no_file_is_in_both_and_none_is_missing(self, wheels: dict[str, Path]):
        device, rest = files_of(wheels["shoal_device"]), files_of(wheels["shoal"])
        assert not device.keys() & rest.keys()
        sources = {
            path.relative_to(ROOT / "src").as_posix()
            for path in (ROOT / "src" / "shoal").rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }
        client = {f"{CLIENT}/shoal.js"} | {
            f"{CLIENT}/src/{path.name}" for path in (ROOT / "clients" / "js" / "src").iterdir()
        }
        assert device.keys() | rest.keys() == sources | client
        for name in client:
            source = ROOT / "clients" / "js" / name.removeprefix(f"{CLIENT}/")
            assert ZipFile(wheels["shoal"]).read(name) == source.read_bytes()

    def test_a_wheel_with_kernels_can_be_published(self, wheels: dict[str, Path]):
        """On Linux its platform is a version of glibc, not the machine that built it."""
        tag = wheels["shoal"].stem.rpartition("-")[2]
        if tag != "any":
            assert re.fullmatch(r"manylinux_2_\d+_\w+|macosx_\w+|linux_\w+", tag)
            assert tag.startswith("linux_") <= (platform.libc_ver()[0] != "glibc")
            assert "shoal/support/_kernels.so" in files_of(wheels["shoal"])

    def test_the_platform_of_a_library(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("sysconfig.get_platform", lambda: "linux-x86_64")
        tag_of = runpy.run_path(str(ROOT / "hatch_build.py"))["platform_tag"]

        def tag(*names: bytes) -> str:
            (tmp_path / "library.so").write_bytes(b"\x7fELF\0" + b"\0".join(names) + b"\0")
            return str(tag_of(tmp_path / "library.so"))

        assert tag(b"libc.so.6", b"GLIBC_2.2.5", b"GLIBC_2.14") == "manylinux_2_17_x86_64"
        assert tag(b"libc.so.6", b"GLIBC_2.2.5", b"GLIBC_2.34") == "manylinux_2_34_x86_64"
        assert tag(b"libc.so.6", b"libomp.so.5", b"GLIBC_2.2.5") == "linux_x86_64"
        assert tag(b"libc.musl-x86_64.so.1") == "linux_x86_64"

    def test_without_kernels_it_runs_everywhere(self, tmp_path: Path):
        built = build(tmp_path, "wheel", SHOAL_KERNELS="off")
        assert all(path.name.endswith("-py3-none-any.whl") for path in built)
        assert not any("_kernels.so" in name for path in built for name in files_of(path))

    def test_the_device_is_three_folders(self, wheels: dict[str, Path]):
        names = files_of(wheels["shoal_device"])
        folders = {name.split("/")[1] for name in names if name.count("/") > 1}
        assert folders == {"agreement", "device", "support"}
        assert not [name for name in names if name.startswith("shoal/device/bulk/")]

    def test_it_is_small(self, wheels: dict[str, Path]):
        """With the compiled files that pip writes, which are about as large again."""
        assert 2 * sum(files_of(wheels["shoal_device"]).values()) < MOST_BYTES

    def test_it_needs_nothing(self):
        assert [
            line for line in distribution("shoal-device").requires or [] if "extra" not in line
        ] == []

    def test_one_version(self):
        pinned = f"shoal-device=={shoal.__version__}"
        assert (
            pinned
            in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        )
        assert distribution("shoal-device").version == distribution("shoal").version
        assert (LIGHT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


SEND = """
import sys
from shoal import Outbox, Plan
from shoal.device.outbox import HttpTransport
plan, to, folder = sys.argv[1:]
for person in ("one", "other"):
    outbox = Outbox(f"{folder}/{person}", HttpTransport(to), spread=0)
    outbox.answer(Plan.read(plan), {"commands": ["build"]})
    print(*[ticket.state for ticket in outbox.send_due(hurry=True)])
"""

WITHOUT_CRYPTOGRAPHY = """
from shoal.errors import InputError
from shoal.device.memory import DeviceMemory
from shoal.protocol.signatures import check_signature
from shoal import Flags, Plan, Survey
from shoal.device.encode import encode
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
memory = Memory(FlipProbability(1, 2), FlipProbability(1, 2))
survey = Survey("s", (Flags("f", ("a", "b")),))
plan = Plan(survey, memory.q, Promise("local", "3"), memory=memory)
device = DeviceMemory("memory", bytes(range(32)))
for use in (lambda: device.report(plan, encode(plan, {"f": ["a"]})),
            lambda: check_signature(bytes(32), b"", "A" * 86)):
    try:
        use()
    except InputError as error:
        print(error)
"""


class TestClean:
    def test_reports_that_a_collector_counts(self, clean_python: Path, tmp_path: Path):
        with served(tmp_path / "data", PLAN, "--smallest-crowd", "2") as collector:
            PLAN.write(tmp_path / "plan.json")
            words = [str(tmp_path / "plan.json"), collector.public, str(tmp_path / "outbox")]
            assert run_clean(clean_python, SEND, *words) == "sent\nsent\n"
            crowd = f"{collector.console}/v1/plans/{PLAN.id}/crowds/1/estimates"
            headers = {"Authorization": f"Bearer {collector.token}"}
            # The console answers for a whole crowd only.
            with urllib.request.urlopen(urllib.request.Request(crowd, headers=headers)) as answer:
                assert answer.status == 200

    def test_what_needs_cryptography_says_so(self, clean_python: Path, tmp_path: Path):
        script = f"import os\nos.chdir({str(tmp_path)!r})\n{WITHOUT_CRYPTOGRAPHY}"
        memory, signature = run_clean(clean_python, script).splitlines()
        assert "pip install 'shoal-device[memory]'" in memory
        assert "pip install 'shoal-device[signatures]'" in signature

    def test_what_is_elsewhere_says_where(self, clean_python: Path):
        script = "import shoal\ntry: shoal.plan\nexcept AttributeError as e: print(e)"
        told = run_clean(clean_python, script)
        assert told == "shoal.plan is not part of the light device: pip install shoal.\n"
        loaded = "import sys, shoal; from shoal import Outbox, encode; print(*sys.modules)"
        assert "cryptography" not in run_clean(clean_python, loaded).split()


@pytest.fixture(scope="module")
def whole_python(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with both wheels; the libraries of others are those that are installed here."""
    folder = tmp_path_factory.mktemp("whole") / "venv"
    python = python_with(folder, "--no-deps", *map(str, wheels.values()))
    (packages,) = folder.glob("lib/python*/site-packages")
    # Links in there to our sources are not followed: only a site's own .pth files are read.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


class TestWhole:
    """Both wheels in a place where nothing else of this repository is."""

    def test_it_is_the_wheel(self, whole_python: Path) -> None:
        """Every module comes from the wheels."""
        script = "import shoal, shoal.cli, shoal.server; print(shoal.cli.__file__, shoal.__file__)"
        assert str(ROOT) not in run_clean(whole_python, script)

    def test_the_whole_way(self, whole_python: Path, tmp_path: Path) -> None:
        """False alarm: sigma is below 9 people, and ten of it happen once in 1e23."""
        found = whole_way(whole_python, tmp_path)
        assert all(abs(count - PEOPLE / 2) < 90 for count in found.values()), found


class TestSources:
    def test_a_wheel_of_the_source_distribution_is_the_same(
        self, wheels: dict[str, Path], tmp_path: Path
    ) -> None:
        archives = {path.name.split("-")[0]: path for path in build(tmp_path / "dist", "sdist")}
        assert archives.keys() == {"shoal", "shoal_device"}
        for name, archive in archives.items():
            with tarfile.open(archive) as packed:
                packed.extractall(tmp_path, filter="data")
            (unpacked,) = tmp_path.glob(f"{name}-*")
            folder = tmp_path / f"wheel of {name}"
            options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
            command = [
                sys.executable,
                "-m",
                "pip",
                "wheel",
                *options,
                "-w",
                str(folder),
                str(unpacked),
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            (wheel,) = folder.iterdir()
            assert files_of(wheel).keys() == files_of(wheels[name]).keys()
