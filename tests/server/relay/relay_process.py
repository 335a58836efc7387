"""A relay in a process of its own, which tests kill, start again, measure and search."""

from __future__ import annotations

import http.client
import time
from pathlib import Path

from shoal import Plan
from shoal.protocol.encryption import CrowdKey
from tests.server.serving_help import ServiceProcess

from .relay_help import LONGEST

_KNOWN = """
import json, sys
from types import SimpleNamespace
from urllib.request import urlopen
from shoal.cli import main
from shoal.server.relay import service
keys = json.load(urlopen("{url}/v1/keys"))["ed25519"]
analyzer = SimpleNamespace(url="{url}", signing_key=keys[0])
service.known_agreement = lambda *_: SimpleNamespace(
    others=dict(analyzer=analyzer), token=lambda role: "")
sys.exit(main())
"""
"""Runs a relay that was set up with the fake analyzer at a URL."""


class Process(ServiceProcess):
    """A relay for one plan; `before` is Python that it runs first.

    Parameters
    ----------
    folder
        Where its data, plan and log are.
    plan, analyzer
        The plan, and the analyzer's URL.
    settings
        Settings of `shoal relay`, over those that let anybody fill a crowd at once.
    """

    def __init__(
        self, folder: Path, plan: Plan, analyzer: str, before: str = "", **settings: object
    ) -> None:
        self.data = folder / "data"
        file = folder / "plan.json"
        plan.write(file)
        options: dict[str, object] = {
            "public": "127.0.0.1:0", "console": "127.0.0.1:0", "min_crowd": 1,
            "max_share_percent": 100, "min_free_megabytes": 0,
        } | settings  # fmt: skip
        program = f"{before}\n{_KNOWN.format(url=analyzer)}"
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        words = ("relay", "--data", str(self.data), str(file), *flags)
        super().__init__(folder / "log", *words, program=program)

    def get(self, path: str, *, console: bool = False) -> tuple[int, bytes]:
        """Fetch something; from the console as its administrator."""
        address = self.address("console" if console else "public")
        assert address is not None
        headers = {}
        if console:
            token = (self.data / "admin-token").read_text().strip()
            headers["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection(*address, timeout=LONGEST)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def crowd_key(self, plan: Plan) -> CrowdKey:
        """Return the key of the open crowd, as soon as the analyzer has given one."""
        end = time.monotonic() + LONGEST
        while (answer := self.get(f"/v1/plans/{plan.id}/crowd-key"))[0] != 200:
            assert time.monotonic() < end, answer
            time.sleep(0.01)
        return CrowdKey.from_bytes(answer[1])
