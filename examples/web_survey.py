"""A web page with a survey, and a panel that shows every byte that left the browser.

Starts a collector on this machine and serves the page. The page uses the client in `clients/js`
as it is; nothing is built. Run ``python examples/web_survey.py`` and open the address it prints.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

from shoal import Choice, Flags, Number, Plan, Survey, plan

HERE = Path(__file__).parent
CLIENT = HERE.parent / "clients" / "js"
PAGES = {"/": "index.html", "/page.js": "page.js", "/page.css": "page.css"}
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}

SURVEY = Survey(
    "commute",
    (
        Choice("travel", ("on foot", "bicycle", "bus or train", "car"), missing="option"),
        Flags("trouble", ("late", "crowded", "expensive", "unsafe")),
        Number("minutes", (15, 30, 60), missing="option"),
    ),
)


def survey_plan() -> Plan:
    """Return what the page and the collector agree on."""
    return plan(SURVEY, crowd_size=1_000, epsilon="2", delta="1e-6")


def settings(public: str, agreed: Plan) -> dict[str, object]:
    """Return what a page ships: the plan's id, the collector, its key, and a limit of its own."""
    with urlopen(f"{public}/v1/keys", timeout=10) as answer:
        key = json.load(answer)["ed25519"][0]
    return {"plan": agreed.id, "to": public, "key": key, "limit": agreed.local_epsilon}


def pages(shipped: dict[str, object], origins: str) -> type[BaseHTTPRequestHandler]:
    """Return what serves the page, the client and the settings, and nothing else."""
    policy = "default-src 'none'; img-src data:; script-src 'self'; style-src 'self';"
    policy += f" connect-src 'self' {origins}"

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/settings.json":
                self._send("application/json", json.dumps(shipped).encode())
            elif path in PAGES:
                self._send_file(HERE / "web_survey" / PAGES[path])
            elif path in {"/shoal.js", *(f"/src/{one.name}" for one in (CLIENT / "src").iterdir())}:
                self._send_file(CLIENT / path[1:])
            else:
                self.send_error(404)

        def _send_file(self, file: Path) -> None:
            self._send(f"{TYPES[file.suffix]}; charset=utf-8", file.read_bytes())

        def _send(self, media: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", policy)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing about who looks at the page."""

    return Pages


@contextmanager
def collector(folder: Path, agreed: Plan, page: str) -> Iterator[str]:
    """Run a collector for the page at this origin and yield the collector's address."""
    file = folder / "plan.json"
    agreed.write(file)
    command = [sys.executable, "-m", "shoal", "serve", "--data", str(folder / "data"), "--json"]
    command += ["--public", "127.0.0.1:0", "--console", "127.0.0.1:0", "--honest", "all"]
    command += ["--origins", page, str(file)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert running.stdout is not None
    try:
        yield json.loads(running.stdout.readline())["public"]
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(30)
        running.stdout.close()


@contextmanager
def served(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    """Serve the page at a port of this machine, by default a free one; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def free_port() -> int:
    """Return a port for the page: the collector must know the page's origin before it starts."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def main() -> None:
    """Run both until Ctrl-C."""
    agreed, port = survey_plan(), free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        collector(Path(folder), agreed, f"http://127.0.0.1:{port}") as public,
        served(pages(settings(public, agreed), public), port) as page,
    ):
        print(f"The survey is at {page}; its collector is at {public}. Ctrl-C stops both.")
        sys.stdout.flush()
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("Stopped; nothing is kept.")


if __name__ == "__main__":
    main()
