"""`shoal collector doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, json_option
from shoal.cli._printing import print_json, printer


@click.command(
    cls=Command, example="shoal collector doctor collector --url https://reports.example"
)
@click.argument("data", type=IN_FILE, metavar="DATA")
@click.option("--url", metavar="URL", help="Address for devices, through the proxy.")
@click.option("--console-url", metavar="URL", help="Address of the console.")
@click.option(
    "--proxy", "proxies", multiple=True, type=IN_FILE, metavar="FILE",
    help="Configuration of nginx or Caddy; repeatable.",
)  # fmt: skip
@click.option("--config", type=IN_FILE, help="Settings as TOML.  [default: DATA/shoal.toml]")
@json_option
def command(
    data: Path,
    url: str | None,
    console_url: str | None,
    proxies: tuple[Path, ...],
    config: Path | None,
    as_json: bool,
) -> int:
    """Check a collector's deployment.

    It checks the data folder, the disk, the clock, the listeners and the proxy in front of them.
    Run it as the user that runs the collector. The exit code is 1 if a check fails; a warning is
    something to look at. Nothing is changed.
    """
    from shoal.server.doctor import worst
    from shoal.server.doctor.examine import examine

    findings = examine(data, url=url, console_url=console_url, proxies=proxies, config=config)
    verdict = worst(findings)
    if as_json:
        print_json({"verdict": verdict, "findings": [one.to_json() for one in findings]})
    else:
        from rich.markup import escape

        console = printer()
        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        for one in findings:
            console.print(
                f"[{colours[one.verdict]}]{one.verdict:4}[/]  [bold]{escape(one.check)}[/bold]: "
                f"{escape(one.sentence)}",
                soft_wrap=True,
            )
            if one.way_out:
                console.print(f"      → {escape(one.way_out)}", soft_wrap=True)
    return 1 if verdict == "fail" else 0
