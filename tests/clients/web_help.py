"""A page and a collector or relay on two ports of this machine, for tests in a browser."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal import Plan
from shoal.protocol.encryption import CrowdKey
from shoal.protocol.signatures import key_text
from shoal.server.core import http as cors
from tests.clients.js_help import CLIENT

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>page</title>
<link rel="icon" href="data:,">
<script type="module">
import { shoal } from "/shoal%(end)s";
import { relay } from "/relay%(end)s";
window.open_survey = (settings) => (window.survey = shoal({ relay, ...settings }));
window.open_shared = async (settings) => {
  const { dap } = await import("/dap%(end)s");
  window.survey = shoal({ dap, ...settings });
};
window.add_form = async (settings, answers) => {
  const { kinds } = await import("/form%(end)s");
  if (answers) Object.assign(kinds, (await import("/kinds%(end)s")).moreKinds);
  const form = document.createElement("shoal-survey");
  Object.assign(form.answers, answers);
  for (const [name, value] of Object.entries(settings)) form.setAttribute(name, value);
  document.querySelector("main").append(form);
};
window.ready = true;
</script><main><h1>A page</h1></main>"""


class Pretended:
    """What answers instead of a collector or a relay, and notes what it was sent."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.document = plan, {"id": plan.id} | plan.to_json()
        self._signing = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
        self.key = key_text(self._signing.public_key().public_bytes_raw())
        self.crowd_secrets = [X25519PrivateKey.from_private_bytes(bytes([n] * 32)) for n in (1, 2)]
        self.crowd = 0
        self.posts: list[bytes] = []
        self.statuses: list[int] = []
        self.heads: list[dict[str, str]] = []
        self.clock = time.time

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """Return the class that answers; it allows pages what the collector allows them."""
        outer = self

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_OPTIONS(self) -> None:
                self._answer(204, b"", dict(_text(cors._PREFLIGHT)))

            def do_GET(self) -> None:
                outer.heads.append(dict(self.headers))
                content = outer.get(self.path)
                status = 404 if content is None else 200
                signature = key_text(outer._signing.sign(content or b""))
                self._answer(status, content or b"", {"Shoal-Signature": signature})

            def do_POST(self) -> None:
                outer.heads.append(dict(self.headers))
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.posts.append(body)
                self._answer(outer.post(body), b"", {})

            def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                origin = {"Access-Control-Allow-Origin": self.headers.get("Origin", "*")}
                shared = dict(_text([cors._EXPOSED])) | origin
                for name, text in (shared | headers).items():
                    if name != "content-length":
                        self.send_header(name, text)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Answers

    def get(self, path: str) -> bytes | None:
        """Return the document at an address."""
        start = f"/v1/plans/{self.plan.id}"
        if path == start:
            return json.dumps(self.document).encode()
        if path == "/v1/keys":
            return json.dumps({"ed25519": [self.key], "links": []}).encode()
        if path.startswith(f"{start}/crowd-key?window="):
            public = self.crowd_secrets[self.crowd].public_key().public_bytes_raw()
            return CrowdKey(self.plan.id, int(path.split("=")[1]), 1, public).to_bytes()
        return None

    def post(self, body: bytes) -> int:
        """Return the status for a request: what was set, or what a collector says to its window."""
        if self.statuses:
            return self.statuses.pop(0)
        if self.plan.window is None:
            return 202
        window = int.from_bytes(body[58:62], "little")
        now = int(self.clock() // self.plan.window)
        return 425 if window > now else 410 if window < now - 1 else 202


def _text(headers: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode(), text.decode()) for name, text in headers]


class Page(BaseHTTPRequestHandler):
    """Serves the page and the client as they are; below /sandboxed the page may keep nothing."""

    folder, end = CLIENT, ".js"

    def do_GET(self) -> None:
        file = self.folder / self.path[1:]
        is_page = self.path in ("/", "/sandboxed")
        if not is_page and (file.suffix != ".js" or not file.is_file()):
            self.send_error(404)
            return
        content = (PAGE % {"end": self.end}).encode() if is_page else file.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if is_page else "text/javascript")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Set-Cookie", "visitor=7; Path=/")
        if self.path == "/sandboxed":
            self.send_header("Content-Security-Policy", "sandbox allow-scripts")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def settings(server: Pretended, address: str, **others: Any) -> dict[str, Any]:
    """Return what a page ships for a plan."""
    return {"plan": server.plan.id, "to": address, "key": server.key, "limit": 100} | others
