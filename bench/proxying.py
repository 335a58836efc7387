"""nginx before a collector, with the configuration of deploy/ and without its limits.

The limits are for each address, and a benchmark has one.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shoal.lab.demo import free_port

DEPLOYED = Path(__file__).parent.parent / "deploy" / "nginx.conf"


@contextmanager
def nginx(folder: Path, upstream: int) -> Iterator[tuple[int, int] | None]:
    """Run nginx before a port; yield its ports without and with TLS, or None if there is none."""
    if shutil.which("nginx") is None:
        yield None
        return
    plain, secure = free_port(), free_port()
    _make_certificate(folder)
    text = re.sub(r"^ *limit_(conn|req)\b.*;\n", "", DEPLOYED.read_text("utf-8"), flags=re.M)
    text = text.replace("listen [::]:443 ssl;", f"listen 127.0.0.1:{plain};")
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{secure} ssl;")
    text = text.replace("127.0.0.1:8400", f"127.0.0.1:{upstream}")
    text = re.sub(r"ssl_certificate .*;", f"ssl_certificate {folder}/cert.pem;", text)
    text = re.sub(r"ssl_certificate_key .*;", f"ssl_certificate_key {folder}/key.pem;", text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/temp_{kind};\n" for kind in kinds)
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\npid {folder}/pid;\nevents {{ worker_connections 4096; }}\n"
        f"http {{\n{places}{text}}}\n"
    )
    command = ["nginx", "-p", str(folder), "-e", str(folder / "nginx.log")]
    process = subprocess.Popen([*command, "-c", str(folder / "nginx.conf")])
    try:
        _wait_for(plain)
        yield plain, secure
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("nginx does not answer")


def _make_certificate(folder: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
