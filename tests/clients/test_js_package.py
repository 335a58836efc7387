"""The npm package: its size, its types, and that what is packed works in a clean folder."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.clients.js_help import CLIENT, NODE, NPM, needs_npm, run

pytestmark = [pytest.mark.system, pytest.mark.slow, needs_npm]

LARGEST = {"shoal": 7_999, "relay": 2_299, "dap": 6_999, "kinds": 1_299, "form": 10_999}
LARGEST_COMPRESSED = 4_500
"""Bytes of the minified files, and of the client; docs/browser.md names them."""


@pytest.mark.parametrize("part", LARGEST)
def test_it_is_small(packed: Path, part: str) -> None:
    content = (packed.parent / "js" / f"{part}.min.js").read_bytes()
    assert len(content) <= LARGEST[part]
    if part == "shoal":
        assert len(gzip.compress(content, 9, mtime=0)) <= LARGEST_COMPRESSED
    assert b"Math.random" not in content
    # Whatever encoding a page has, these bytes mean the same.
    assert content.isascii()


def test_the_minified_client_passes_the_tests_of_the_sources(packed: Path) -> None:
    assert NODE is not None
    built = packed.parent / "js"
    names = {"CLIENT": "shoal", "RELAY": "relay", "DAP": "dap", "KINDS": "kinds"}
    parts = {f"SHOAL_{variable}": f"{name}.min.js" for variable, name in names.items()}
    environment = os.environ | {name: (built / file).as_uri() for name, file in parts.items()}
    tests = [str(CLIENT / "test" / f"{name}.test.js") for name in ("client", "dap")]
    command = [NODE, "--test", *tests]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "# fail 0" in done.stdout


def test_what_is_packed_works_in_a_clean_folder(packed: Path, tmp_path: Path) -> None:
    assert NPM is not None
    assert NODE is not None
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    run(tmp_path, NPM, "install", "--offline", "--no-fund", str(packed))
    (tmp_path / "use.js").write_text(
        """
import { readFileSync } from "node:fs";
import { shoal, ShoalError } from "shoal";
import * as small from "shoal/shoal.min.js";
import { relay } from "shoal/relay";
import { dap } from "shoal/dap";
import { openTelemetry } from "shoal/telemetry";
const seen = [];
for (const open of [shoal, small.shoal]) {
  const kept = {};
  const survey = open({
    plan: "0".repeat(64),
    to: "http://127.0.0.1:9",
    store: async (name, change) => (kept[name] = change(kept[name])),
    fetch: async () => new Response('{"version": 9}'),
  });
  seen.push(await survey.answer({}).catch((error) => error.message));
}
const tool = { tool: "t", plan: { version: 9 }, to: "https://a.example" };
seen.push(await openTelemetry(tool).catch((error) => error.message));
const script = readFileSync(new URL(import.meta.resolve("shoal/shoal.global.min.js")), "utf8");
(0, eval)(script + ";globalThis.Shoal = Shoal");
const found = [relay.pack, dap.pack, Shoal.shoal].map((one) => typeof one);
console.log(JSON.stringify([seen, ShoalError.name, ...found]));
"""
    )
    sentence = "a plan of version 9 is not known here."
    assert json.loads(run(tmp_path, NODE, "use.js")) == [
        [sentence] * 3, "ShoalError", "function", "function", "function",
    ]  # fmt: skip
    installed = tmp_path / "node_modules" / "shoal"
    assert json.loads((installed / "package.json").read_text()).get("dependencies") is None
    assert {path.name for path in installed.iterdir()} == {
        "README.md", "package.json", "src", "types",
        "shoal.js", "relay.js", "dap.js", "kinds.js", "form.js", "telemetry.js",
        "shoal.min.js", "relay.min.js", "dap.min.js", "kinds.min.js", "form.min.js",
        "shoal.global.min.js",
    }  # fmt: skip


def test_types_are_for_callers(packed: Path, tmp_path: Path) -> None:
    """A caller who forgets the plan's id, or misspells a state, is told by the compiler."""
    compiler = packed.parent / "js" / "node_modules" / "typescript" / "bin" / "tsc"
    types = packed.parent / "js" / "types" / "shoal.d.ts"
    assert types.exists()
    head = f'import {{ shoal }} from "{types.with_suffix("").with_suffix("").as_posix()}";\n'
    good = 'const t = await shoal({ plan: "x", to: "y" }).send(); t[0].state == "sent";\n'
    bad = ('shoal({ to: "y" });\n', 'const t = await shoal({ plan: "x", to: "y" }).send();'
           ' t[0].state == "gone";\n')  # fmt: skip
    assert NODE is not None
    for place, text in enumerate((good, *bad)):
        file = tmp_path / f"use{place}.mts"
        file.write_text(head.replace("shoal.d", "shoal").replace('shoal"', 'shoal.js"') + text)
        command = [NODE, str(compiler), "--noEmit", "--strict", "--module", "nodenext"]
        command += ["--target", "es2022", "--lib", "es2022,dom", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (place == 0), done.stdout
