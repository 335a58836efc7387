"""Configurations of proxies: the ones we ship are well, and each way to leak is found."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InputError
from shoal.server.doctor.proxies import check_proxy, read_caddy, read_nginx
from tests.strategies import bounded

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
NGINX = (DEPLOY / "nginx.conf").read_text("utf-8")
CADDY = (DEPLOY / "Caddyfile").read_text("utf-8")


def found(text: str, at: Path, name: str = "proxy.conf") -> dict[str, str]:
    """The verdict of each thing found in a configuration."""
    file = at / name
    file.write_text(text, "utf-8")
    prefix = f"proxy {name}"
    return {
        one.check.removeprefix(prefix).removeprefix(": "): one.verdict for one in check_proxy(file)
    }


def test_what_we_ship_is_well(tmp_path: Path):
    assert found(NGINX, tmp_path) == {"": "ok"}
    assert found(CADDY, tmp_path) == {"limits": "warn"}  # it has none by itself
    limited = CADDY.replace("\thandle @public", "\trate_limit {\n\t}\n\thandle @public")
    assert found(limited, tmp_path) == {"": "ok"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("access_log off;", "", {"access log": "fail"}),
        ("access_log off;", "access_log /var/log/nginx/a.log;", {"access log": "fail"}),
        ("access_log off;", "access_log off; # x\n access_log b;", {"access log": "fail"}),
        ("access_log off;", "# access_log off;", {"access log": "fail"}),
        ("location / {", "location /v1/x { access_log a; proxy_pass http://b; }\nlocation / {",
         {"access log": "fail"}),
        ("error_log /dev/null crit;", "", {"error log": "warn"}),
        ("error_log /dev/null crit;", "error_log /var/log/e;", {"error log": "warn"}),
        ("error_log /dev/null crit;", "error_log stderr crit;", {"": "ok"}),
        ("proxy_set_header Host $host;", "proxy_set_header X-Real-IP $remote_addr;",
         {"addresses": "fail"}),
        ("proxy_set_header Host $host;",
         "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;", {"addresses": "fail"}),
        ("proxy_set_header Host $host;", "proxy_set_header X-A '${remote_addr}';",
         {"addresses": "fail"}),
        ("proxy_set_header Host $host;", "proxy_set_header Forwarded $x;", {"addresses": "fail"}),
        ("proxy_set_header Host $host;", 'proxy_set_header X-Forwarded-For "";', {"": "ok"}),
        ("proxy_set_header Host $host;", "proxy_set_header Cookie $http_cookie;",
         {"addresses": "fail"}),
        ("proxy_set_header Host $host;", "proxy_bind $remote_addr transparent;",
         {"addresses": "fail"}),
        ("server_tokens off;", "real_ip_header X-Forwarded-For;", {"addresses": "fail"}),
        ("server_tokens off;", "set_real_ip_from 10.0.0.0/8;", {"addresses": "fail"}),
        ("client_body_buffer_size 2m;", "", {"bodies": "fail"}),
        ("client_body_buffer_size 2m;", "client_body_buffer_size 2047k;", {"bodies": "fail"}),
        ("client_max_body_size 2m;\n    client_body_buffer_size 2m;",
         "client_max_body_size 0;\nclient_body_buffer_size 1g;", {"bodies": "fail"}),
        ("client_body_buffer_size 2m;", "proxy_request_buffering off;", {"slow bodies": "warn"}),
        ("client_body_buffer_size 2m;",
         "proxy_request_buffering off; client_body_in_file_only clean;", {"bodies": "fail"}),
        ("limit_conn shoal_connections 20;", "", {"limits": "warn"}),
        ("limit_req zone=shoal_requests burst=50 nodelay;", "", {"limits": "warn"}),
        ("server_tokens off;", "proxy_cache_methods GET HEAD POST;", {"cache": "fail"}),
        ("server_tokens off;", "proxy_store on;", {"cache": "fail"}),
        ("server_tokens off;", "mirror /copy;", {"mirror": "fail"}),
        ("server_tokens off;", "userid on;", {"cookies": "fail"}),
        ("server_tokens off;", "add_header Set-Cookie a=b;", {"cookies": "fail"}),
        ("server_tokens off;", "include more.conf;", {"include": "warn"}),
        ("listen 443 ssl;\n    listen [::]:443 ssl;", "listen 80;", {"TLS": "warn"}),
        ("client_max_body_size 2m;", "client_max_body_size lots;", {"": "fail"}),
    ],
)  # fmt: skip
def test_nginx(old: str, new: str, expected: dict[str, str], tmp_path: Path):
    assert old in NGINX
    assert found(NGINX.replace(old, new, 1), tmp_path) == expected


def test_an_outer_block_counts_where_an_inner_one_is_silent(tmp_path: Path):
    outer = "http {{ {} server {{ listen 443 ssl; location / {{ proxy_pass http://a; }} }} }}"
    quiet = "access_log off; error_log /dev/null; client_body_buffer_size 2m;"
    limits = "limit_conn a 1; limit_req zone=b;"
    assert found(outer.format(quiet + limits), tmp_path) == {"": "ok"}
    assert found(outer.format(""), tmp_path) == {
        "access log": "fail",
        "error log": "warn",
        "bodies": "fail",
        "limits": "warn",
    }


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("\theader {", "\tlog\n\theader {", {"access log": "fail"}),
        ("\theader {", "\tlog {\n\toutput file /a\n\t}\n\theader {", {"access log": "fail"}),
        ("header_up -X-Forwarded-For", "", {"addresses": "fail"}),
        ("header_up -X-Forwarded-For", "# header_up -X-Forwarded-For", {"addresses": "fail"}),
        ("header_up -Cookie", "header_up X-Real-IP {remote_host}", {"addresses": "fail"}),
        ("header_up -Cookie", "header_up X-A {client_ip}", {"addresses": "fail"}),
        ("header_up -Cookie", "header_up X-A {http.request.remote.host}", {"addresses": "fail"}),
        ("header_up -Cookie", 'header_up Forwarded "for=1"', {"addresses": "fail"}),
        ("header_up -Cookie", "", {"": "ok"}),
        ("request_buffers 2MiB", "", {"slow bodies": "warn"}),
        ("request_buffers 2MiB", "buffer_requests", {"": "ok"}),
        ("exclude http.log.error", "level INFO", {"error log": "warn"}),
        ("exclude http.log.error", "output discard", {"": "ok"}),
        ("\theader {", "\theader Set-Cookie a=b\n\theader {", {"cookies": "fail"}),
        ("\theader {", "\tcache\n\theader {", {"cache": "warn"}),
        ("\theader {", "\timport more\n\theader {", {"include": "warn"}),
        ("collect.example.org {", "http://collect.example.org {", {"TLS": "warn"}),
    ],
)  # fmt: skip
def test_caddy(old: str, new: str, expected: dict[str, str], tmp_path: Path):
    assert old in CADDY
    limited = CADDY.replace("\thandle @public", "\trate_limit {\n\t}\n\thandle @public")
    assert found(limited.replace(old, new, 1), tmp_path, "Caddyfile") == expected


def test_caddy_without_braces(tmp_path: Path):
    text = "collect.example.org\nreverse_proxy localhost:8400\nlog\n"
    assert found(text, tmp_path) == {
        "error log": "warn",
        "addresses": "fail",
        "access log": "fail",
        "slow bodies": "warn",
        "limits": "warn",
    }


@pytest.mark.parametrize(
    "text", ["", "hello", "# proxy_pass", "proxy_pass {", "proxy_pass a; }", "proxy_pass 'a"]
)
def test_what_cannot_be_judged_fails(text: str, tmp_path: Path):
    assert found(text, tmp_path) == {"": "fail"}


def test_a_file_that_is_not_there(tmp_path: Path):
    (finding,) = check_proxy(tmp_path / "none")
    assert (finding.verdict, "No such file" in finding.sentence) == ("fail", True)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (finding,) = check_proxy(tmp_path / "binary")
    assert finding.verdict == "fail"


@bounded(200)
@given(st.text("{}; \n\"'`\\#$a-_", max_size=60))
def test_any_text_is_read_or_refused(text: str):
    for read in (read_nginx, read_caddy):
        with suppress(InputError):
            read(text)
