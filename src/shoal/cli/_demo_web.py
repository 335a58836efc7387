"""`shoal demo --web`: a page with a survey, whose visitor is one of a crowd."""

from __future__ import annotations

import json
import time

import click

from shoal.protocol.survey import Survey

__all__ = ["show_web"]


def show_web(survey: Survey, users: int, seed: int, *, opens: bool, as_json: bool) -> None:
    """Run the demonstration until Ctrl-C."""
    import webbrowser

    from shoal.lab.web_demo import web_demonstration
    from shoal.planning.plan import plan

    agreed = plan(survey, crowd_size=users, epsilon="1", delta="1e-6")
    try:
        with web_demonstration(agreed, seed=seed) as address:
            if as_json:
                click.echo(json.dumps({"page": address, "plan": agreed.id}))
            else:
                click.echo(f"The survey is at {address}")
                click.echo("Answer it in your browser. Ctrl-C ends the demonstration.")
            if opens:
                webbrowser.open(address)
            while True:
                time.sleep(3600)
    except KeyboardInterrupt:
        click.echo("Stopped; nothing is kept.", err=True)
