"""The distribution: what is in it, what it needs, and that it installs from a bare checkout."""

from __future__ import annotations

import os
import platform
import re
import runpy
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import numpy
import pytest
from packaging.requirements import Requirement

import shoal
from tests.requirements import FILES, ROOT, declared, project, wanted
from tests.whole_way import PEOPLE, whole_way

CLIENT = "shoal/lab/web_demo/client"
"""Where the client for web pages is installed."""
PINNED = {
    found[1].lower().replace("_", "-"): found[2]
    for found in re.finditer(
        r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.M
    )
}


def run(*command: object, **environment: str) -> str:
    """Run a command without our own settings; return what it prints."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "PYTHON"))}
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=ROOT, env=clean | environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(folder: Path, target: str, source: Path = ROOT, /, **environment: str) -> Path:
    """Build a wheel or a source distribution with the hatchling that is installed here."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", folder, "-t", target]
    done = subprocess.run(
        list(map(str, command)), cwd=source, env=os.environ | environment, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.iterdir()
    return built


def files_of(wheel: Path) -> set[str]:
    return {name for name in ZipFile(wheel).namelist() if name.startswith("shoal/")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"), "wheel")


class TestWheel:
    @pytest.mark.slow
    def test_it_has_every_source_and_the_web_client(self, wheel: Path):
        sources = {
            path.relative_to(ROOT / "src").as_posix()
            for path in (ROOT / "src" / "shoal").rglob("*")
            if path.is_file() and path.suffix not in (".pyc", ".so")
        }
        scripts = ROOT / "clients" / "js"
        client = {f"{CLIENT}/shoal.js"} | {
            f"{CLIENT}/src/{path.name}" for path in (scripts / "src").glob("*.js")
        }
        verifier = "shoal/theory/verify_certificate.py"
        assert files_of(wheel) - {"shoal/support/_kernels.so"} == sources | client | {verifier}
        tool = ROOT / "tools" / "verify_certificate.py"
        assert ZipFile(wheel).read(verifier) == tool.read_bytes()
        for name in client:
            installed = ZipFile(wheel).read(name)
            assert installed == (scripts / name.removeprefix(f"{CLIENT}/")).read_bytes()

    @pytest.mark.slow
    def test_a_wheel_with_kernels_can_be_published(self, wheel: Path):
        """On Linux its platform is a version of glibc, not the machine that built it."""
        tag = wheel.stem.rpartition("-")[2]
        if tag != "any":
            assert re.fullmatch(r"manylinux_2_\d+_\w+|macosx_\w+|linux_\w+", tag)
            assert tag.startswith("linux_") <= (platform.libc_ver()[0] != "glibc")
            assert "shoal/support/_kernels.so" in files_of(wheel)

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

    @pytest.mark.slow
    @pytest.mark.parametrize("environment", [{"SHOAL_KERNELS": "off"}, {"CC": "no-compiler"}])
    def test_without_a_compiler_it_is_pure_python(
        self, tmp_path: Path, environment: dict[str, str]
    ):
        built = build(tmp_path, "wheel", **environment)
        assert built.name.endswith("-py3-none-any.whl")
        assert "shoal/support/_kernels.so" not in files_of(built)

    @pytest.mark.slow
    def test_the_source_distribution_builds_the_same_wheel(self, wheel: Path, tmp_path: Path):
        with tarfile.open(build(tmp_path / "dist", "sdist")) as packed:
            packed.extractall(tmp_path / "unpacked", filter="data")
        (unpacked,) = (tmp_path / "unpacked").iterdir()
        assert files_of(build(tmp_path / "again", "wheel", unpacked)) == files_of(wheel)


ONE_REPORT = """
import sys
from shoal import Flags, Plan, Survey, randomize
from shoal.device.randomize import pack_reports
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
survey = Survey("tool", (Flags("commands", ("build", "test")),))
plan = Plan(survey, FlipProbability(1, 2), Promise("local", "2.2"))
print(len(pack_reports(plan, randomize(plan, {"commands": ["build"]}))))
print(*sorted({"numpy", "cryptography", "click"} & sys.modules.keys()))
import shoal
try:
    shoal.plan
except shoal.ShoalError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("address", [str(ROOT), f"git+file://{ROOT}"], ids=["folder", "git"])
def test_a_bare_checkout_installs_into_an_empty_environment(address: str, tmp_path: Path):
    """One report needs no library, and everything else names its extra."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", address)
    assert run(python, "-m", "pip", "freeze").count("\n") == 1
    assert run(python.with_name("shoal"), "--version").strip() == f"shoal {shoal.__version__}"
    length, loaded, told = run(python, "-I", "-W", "error", "-c", ONE_REPORT).splitlines()
    assert (length, loaded) == ("1", "")
    assert told.endswith("pip install 'shoal[analysis]'.")
    bare = subprocess.run([python.with_name("shoal"), "plan", "x"], capture_output=True, text=True)
    assert "pip install 'shoal[cli]'" in bare.stderr
    assert bare.returncode == 2
    assert bare.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_wheel_works_from_plan_to_collector(wheel: Path, tmp_path: Path):
    """False alarm: sigma is below 9 people, and ten sigma happen once in 1e23."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel
    )
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    # Other people's libraries are those installed here. The .pth files in there are not read, so
    # that our sources are not found.
    (packages / "libraries.pth").write_text(f"{Path(numpy.__file__).parent.parent}\n")
    assert str(ROOT) not in run(python, "-I", "-c", "import shoal.cli; print(shoal.cli.__file__)")
    found = whole_way(python, tmp_path)
    assert all(abs(count - PEOPLE / 2) < 90 for count in found.values()), found


class TestVersions:
    def test_nothing_is_needed_and_the_command_line_comes_with_every_extra(self):
        table = project()["project"]
        assert table["dependencies"] == []
        extras = set(table["optional-dependencies"]) - {"bench", "docs", "lint", "peers", "test"}
        for extra in extras:
            assert {"click", "rich"} <= {Requirement(one).name for one in declared(extra)}, extra

    def test_tested_versions_are_allowed(self):
        for requirement in map(
            Requirement, declared(*project()["project"]["optional-dependencies"])
        ):
            assert requirement.specifier.contains(PINNED[requirement.name.lower()]), requirement
            assert any(bound.operator == ">=" for bound in requirement.specifier), requirement

    def test_constraints_name_no_machine(self):
        lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.+!]+", line) for line in lines)
        assert "shoal" not in PINNED

    @pytest.mark.parametrize("file", FILES)
    def test_deployed_files_have_a_hash_and_a_tested_version(self, file: str):
        pins = {}
        for line in (ROOT / file).read_text("utf-8").replace("\\\n", "").splitlines():
            if not line.startswith("#"):
                pin, *hashes = line.split()
                assert hashes
                assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)
                name, _, pins[name] = pin.partition("==")
        assert all(PINNED.get(name, version) == version for name, version in pins.items())
        for requirement in map(Requirement, wanted(file)):
            assert requirement.specifier.contains(pins[requirement.name])
