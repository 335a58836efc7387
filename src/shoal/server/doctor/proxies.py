"""Checks the configuration of a reverse proxy for settings that record or reveal senders.

A proxy sees every address. It must not write them down, pass them on, or keep bodies on its disk.
Since nobody behind it sees them, it is also the one to limit what each of them may send.
What is read is nginx's language and Caddy's, as far as these questions need it: directives, their
words, and the blocks they stand in. Files that a configuration includes are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shoal.errors import InputError
from shoal.server.doctor import Finding
from shoal.support.files import first_line

__all__ = ["Directive", "check_proxy", "read_caddy", "read_nginx"]

_LARGEST = 1 << 20
_SENDERS = ("x-forwarded-for", "x-real-ip", "forwarded", "true-client-ip", "cf-connecting-ip")
_NGINX_SENDER = re.compile(
    r"\$(?:\{)?(?:remote_|proxy_add_x_forwarded_for|http_x_forwarded|http_x_real_ip|http_forwarded"
    r"|realip_|proxy_protocol_addr|http_cookie|cookie_|http_user_agent|ssl_client|request_id)"
)
_CADDY_SENDER = re.compile(
    r"\{(?:remote|client_ip|http\.request\.(?:remote|header\.(?:cookie|user-agent|x-)|uuid|cookie))"
    r"|\{(?:header\.(?:cookie|user-agent|x-)|cookie\.)",
    re.IGNORECASE,
)
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def check_proxy(path: Path) -> list[Finding]:
    """Read one configuration and return the findings."""
    name = f"proxy {path.name}"
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST).decode("utf-8")
        if re.search(r"^[^#\n]*\bproxy_pass\b", text, re.M):
            findings = list(_check_nginx(read_nginx(text)))
        elif re.search(r"^[^#\n]*\breverse_proxy\b", text, re.M):
            findings = list(_check_caddy(read_caddy(text)))
        else:
            raise InputError("it has no proxy_pass of nginx and no reverse_proxy of Caddy")
    except (OSError, UnicodeDecodeError, InputError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        return [Finding(name, "fail", f"It cannot be checked: {reason}.", "Name the right file.")]
    if not findings:
        sentence = "It logs, forwards and stores no addresses, and limits each address."
        return [Finding(name, "ok", sentence)]
    return [
        Finding(f"{name}: {one.check}", one.verdict, one.sentence, one.way_out) for one in findings
    ]


@dataclass
class _Place:
    """A place in nginx's configuration that forwards requests, and the directives in effect."""

    line: int
    holds: dict[str, list[list[str]]] = field(default_factory=dict)

    def last(self, name: str, default: str) -> str:
        words = self.holds.get(name, [[default]])[-1]
        return words[0] if words else default


def _nginx_places(
    directives: list[Directive], outer: dict[str, list[list[str]]]
) -> Iterator[_Place]:
    """Yield the places with a proxy_pass; a directive of a block hides those around it."""
    own: dict[str, list[list[str]]] = {}
    for one in directives:
        own.setdefault(one.name, []).append(one.words)
    holds = outer | own
    for one in directives:
        if one.name == "proxy_pass":
            yield _Place(one.line, holds)
        yield from _nginx_places(one.block, holds)


def _every(directives: list[Directive]) -> Iterator[Directive]:
    for one in directives:
        yield one
        yield from _every(one.block)


def _check_nginx(directives: list[Directive]) -> Iterator[Finding]:
    for place in _nginx_places(directives, {}):
        yield from _nginx_logs(place)
        yield from _nginx_bodies(place)
        yield from _nginx_limits(place)
        listens = place.holds.get("listen", [])
        if listens and not any("ssl" in words or "quic" in words for words in listens):
            yield Finding(
                "TLS", "warn", f"Reports come to line {place.line} without TLS.",
                "listen 443 ssl;",
            )  # fmt: skip
    for one in _every(directives):
        yield from _nginx_directive(one)


def _nginx_logs(place: _Place) -> Iterator[Finding]:
    logs = place.holds.get("access_log", [["its default"]])
    targets = [words[0] for words in logs if words and words[0] != "off"]
    if targets:
        yield Finding(
            "access log", "fail",
            f"Requests forwarded by line {place.line} are logged with the address ({targets[0]}).",
            "access_log off;",
        )  # fmt: skip
    words = place.holds.get("error_log", [[]])[-1]
    quiet = words[:1] == ["/dev/null"] or words[1:2] in (["crit"], ["alert"], ["emerg"])
    if not quiet:
        yield Finding(
            "error log", "warn",
            f"Errors at line {place.line} are logged with the sender's address.",
            "error_log /dev/null crit;",
        )  # fmt: skip


def _nginx_bodies(place: _Place) -> Iterator[Finding]:
    if place.last("client_body_in_file_only", "off") != "off":
        yield Finding(
            "bodies", "fail", f"Bodies at line {place.line} are written to files.",
            "client_body_in_file_only off;",
        )  # fmt: skip
    elif place.last("proxy_request_buffering", "on") != "off":
        buffer = _size(place.last("client_body_buffer_size", "16k"))
        largest = _size(place.last("client_max_body_size", "1m"))
        if largest == 0 or buffer < largest:
            yield Finding(
                "bodies", "fail",
                f"Bodies at line {place.line} that do not fit in a buffer are written to files.",
                "client_max_body_size 1m; client_body_buffer_size 1m;",
            )  # fmt: skip
    else:
        yield Finding(
            "slow bodies", "warn",
            f"Bodies at line {place.line} wait at the collector, not in the proxy.",
            "Remove proxy_request_buffering; client_body_buffer_size 1m;",
        )  # fmt: skip


def _nginx_limits(place: _Place) -> Iterator[Finding]:
    missing = [name for name in ("limit_conn", "limit_req") if name not in place.holds]
    if missing:
        yield Finding(
            "limits", "warn",
            f"At line {place.line} nothing limits requests of one address ({', '.join(missing)}).",
            "See deploy/nginx.conf.",
        )  # fmt: skip


def _nginx_directive(one: Directive) -> Iterator[Finding]:
    words = " ".join(one.words)
    name, line = one.name, one.line
    if name in ("proxy_set_header", "proxy_bind", "fastcgi_param", "grpc_set_header"):
        header, value = (one.words[0].lower() if one.words else ""), " ".join(one.words[1:])
        if _NGINX_SENDER.search(words) or (header in _SENDERS and value):
            yield Finding(
                "addresses", "fail", f"Line {line} forwards who sends a report: {name} {header}.",
                'Remove it, or set the header to "".',
            )  # fmt: skip
    elif name in ("real_ip_header", "set_real_ip_from", "proxy_protocol"):
        yield Finding(
            "addresses", "fail", f"Line {line} restores the sender's address ({name}).",
            "Remove it.",
        )  # fmt: skip
    elif name == "proxy_cache_methods" and "POST" in one.words:
        yield Finding("cache", "fail", f"Line {line} caches reports.", "Remove POST.")
    elif name == "proxy_store" and words != "off":
        yield Finding("cache", "fail", f"Line {line} stores answers in files.", "proxy_store off;")
    elif name == "mirror" and words != "off":
        yield Finding("mirror", "fail", f"Line {line} sends a copy elsewhere.", "mirror off;")
    elif (name == "userid" and words in ("on", "v1")) or (
        name == "add_header" and words.lower().startswith("set-cookie")
    ):
        yield Finding("cookies", "fail", f"Line {line} sets a cookie.", "Remove it.")
    elif name == "include" and not words.endswith("mime.types"):
        yield Finding(
            "include", "warn", f"Line {line} includes {words}, which is not read.",
            "Give the output of nginx -T instead.",
        )  # fmt: skip


def _size(text: str) -> int:
    matched = re.fullmatch(r"(\d{1,12})([kmg]?)", text.lower())
    if matched is None:
        raise InputError(f"{text[:20]!r} is no size")
    return int(matched[1]) * _SIZES[matched[2]]


def _check_caddy(directives: list[Directive]) -> Iterator[Finding]:
    whole = [one for one in directives if one.name == "{"]
    quiet = False
    for one in (inner for block in whole for inner in block.block if inner.name == "log"):
        silenced = {word for inner in one.block for word in inner.words}
        quiet |= "http.log.error" in silenced or "discard" in silenced or "http" in silenced
    if not quiet:
        yield Finding(
            "error log", "warn", "Errors are logged with the sender's address.",
            "{ log { exclude http.log.error } } at the top.",
        )  # fmt: skip
    for site in directives:
        if site.name == "{":
            continue
        if site.name.startswith("http://") or site.name.endswith(":80"):
            yield Finding(
                "TLS", "warn", f"{site.name} is without TLS.", "Name the site without http://."
            )
        inside = list(_every([site]))
        if not any(one.name == "rate_limit" for one in inside):
            yield Finding(
                "limits", "warn",
                f"In {site.name} nothing limits one address: Caddy cannot without a plugin.",
                "Build it with github.com/mholt/caddy-ratelimit, or use nginx.",
            )  # fmt: skip
        for one in inside:
            yield from _caddy_directive(one)


def _caddy_directive(one: Directive) -> Iterator[Finding]:
    words = " ".join(one.words)
    if one.name in ("log", "log_append"):
        yield Finding(
            "access log", "fail", f"Line {one.line} logs requests with their addresses.",
            "Remove it.",
        )  # fmt: skip
    elif one.name == "reverse_proxy":
        taken_out = {inner.words[0].lower() for inner in one.block
                     if inner.name == "header_up" and inner.words}  # fmt: skip
        if not {inner.name for inner in one.block} & {"request_buffers", "buffer_requests"}:
            yield Finding(
                "slow bodies", "warn",
                f"Bodies at line {one.line} wait at the collector, not in the proxy.",
                "request_buffers 1MiB",
            )  # fmt: skip
        if not taken_out & {"-x-forwarded-for", "-x-forwarded-*", "-*"}:
            yield Finding(
                "addresses", "fail",
                f"Line {one.line} forwards the sender's address, which is Caddy's default.",
                "header_up -X-Forwarded-For",
            )  # fmt: skip
    elif one.name in ("header_up", "request_header"):
        header = one.words[0].lower() if one.words else ""
        named = header.lstrip("+?>") in _SENDERS and len(one.words) > 1
        if not header.startswith("-") and (named or _CADDY_SENDER.search(words)):
            yield Finding(
                "addresses", "fail", f"Line {one.line} forwards who sends a report.",
                "Remove it.",
            )  # fmt: skip
    elif (
        one.name == "header"
        and "set-cookie" in words.lower()
        and "-set-cookie" not in (words.lower())
    ):
        yield Finding("cookies", "fail", f"Line {one.line} sets a cookie.", "Remove it.")
    elif one.name == "cache":
        yield Finding("cache", "warn", f"Line {one.line} caches.", "Check that it caches GET only.")
    elif one.name == "import":
        yield Finding(
            "include", "warn", f"Line {one.line} imports {words}, which is not read.",
            "Give that file too.",
        )  # fmt: skip


_DEEPEST = 50
_NGINX = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<sign>[{};])
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | '(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<word>(?:\$\{[^}\s]*\}|[^\s{};"'\\]|\\.)(?:\$\{[^}\s]*\}|[^\s{};\\]|\\.)*)""",
    re.X | re.S,
)
_CADDY = re.compile(
    r"""(?P<space>[^\S\n]+|\#[^\n]*|\\\n)
      | (?P<sign>\n)
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | `(?P<single>[^`]*)`
      | (?P<word>[^\s"`][^\s]*)""",
    re.X | re.S,
)


@dataclass
class Directive:
    """One directive: its name, its words, and the directives in its block."""

    name: str
    words: list[str]
    line: int
    block: list[Directive] = field(default_factory=list)


def read_nginx(text: str) -> list[Directive]:
    """Read nginx's language.

    >>> [server] = read_nginx("server { listen 443 ssl; access_log off; }")
    >>> [(one.name, one.words) for one in server.block]
    [('listen', ['443', 'ssl']), ('access_log', ['off'])]
    """
    top: list[Directive] = []
    open_blocks = [top]
    words: list[str] = []
    begins = 1
    for token, is_sign, line in _tokens(_NGINX, text):
        if not is_sign:
            begins = line if not words else begins
            words.append(token)
            continue
        if words and token != "}":  # noqa: S105  a brace
            open_blocks[-1].append(Directive(words[0].lower(), words[1:], begins))
        elif words or (token == "{" and not words):  # noqa: S105  a brace
            raise InputError(f"line {line} is not nginx's language")
        if token == "{":  # noqa: S105  a brace
            open_blocks.append(open_blocks[-1][-1].block)
        if token == "}":  # noqa: S105  a brace
            open_blocks.pop()
        words = []
        if not 1 <= len(open_blocks) <= _DEEPEST:
            raise InputError(f"the braces do not fit at line {line}")
    if len(open_blocks) != 1 or words:
        raise InputError("it ends within a directive")
    return top


def read_caddy(text: str) -> list[Directive]:
    r"""Read a Caddyfile; its global options are a directive with a brace for a name.

    >>> [site] = read_caddy("a.example {\n  reverse_proxy b:1 {\n    header_up -X y\n  }\n}")
    >>> site.name, site.block[0].words, site.block[0].block[0].words
    ('a.example', ['b:1'], ['-X', 'y'])
    """
    top: list[Directive] = []
    open_blocks = [top]
    words: list[str] = []
    begins = 1
    # A site that is the only one may stand without braces: its first line is its address.
    for token, is_sign, line in (*_tokens(_CADDY, text), ("\n", True, 0)):
        if not is_sign:
            begins = line if not words else begins
            words.append(token)
            continue
        if words == ["}"]:
            open_blocks.pop()
        elif words and words[-1] == "{":
            opened = Directive(words[0], words[1:-1], begins)
            open_blocks[-1].append(opened)
            open_blocks.append(opened.block)
        elif words:
            open_blocks[-1].append(Directive(words[0], words[1:], begins))
        words = []
        if not 1 <= len(open_blocks) <= _DEEPEST:
            raise InputError(f"the braces do not fit at line {line}")
    if len(open_blocks) != 1:
        raise InputError("it ends within a block")
    return top


def _tokens(language: re.Pattern[str], text: str) -> Iterator[tuple[str, bool, int]]:
    """Yield words and signs, each with whether it is a sign and its line."""
    place, line = 0, 1
    while place < len(text):
        matched = language.match(text, place)
        if matched is None:
            raise InputError(f"line {line} cannot be read")
        kind = matched.lastgroup
        if kind == "sign":
            yield matched[0], True, line
        elif kind != "space":
            yield matched[str(kind)], False, line
        line += matched[0].count("\n")
        place = matched.end()
