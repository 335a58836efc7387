"""Checks the configuration of a reverse proxy for settings that record or reveal senders.

A proxy sees every address. It must not log or forward them, or keep bodies on its disk. Since the
collector does not see them, the proxy must also limit how much each address may send. The parser
reads as much of nginx's and Caddy's languages as that needs; it does not follow includes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shoal.errors import InputError
from shoal.server.doctor import Finding, fail, ok, warn
from shoal.support.files import first_line

_LARGEST = 1 << 20
_DEEPEST = 50
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

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def header(self) -> str:
        return self.words[0].lower() if self.words else ""


def check_proxy(path: Path) -> list[Finding]:
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
        return [fail(name, f"It cannot be checked: {reason}.", "Name the right file.")]
    if not findings:
        return [ok(name, "It logs, forwards and stores no addresses, and limits each address.")]
    return [
        Finding(f"{name}: {one.check}", one.verdict, one.sentence, one.way_out) for one in findings
    ]


def _every(directives: list[Directive]) -> Iterator[Directive]:
    for one in directives:
        yield one
        yield from _every(one.block)


@dataclass
class _Place:
    """A place in nginx's configuration that forwards requests, and the directives in effect."""

    line: int
    holds: dict[str, list[list[str]]]

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


def _check_nginx(directives: list[Directive]) -> Iterator[Finding]:
    for place in _nginx_places(directives, {}):
        yield from _nginx_place(place)
    for one in _every(directives):
        yield from _nginx_directive(one)


def _nginx_place(place: _Place) -> Iterator[Finding]:
    line, holds = place.line, place.holds
    logs = holds.get("access_log", [["its default"]])
    targets = [words[0] for words in logs if words and words[0] != "off"]
    if targets:
        sentence = f"Requests forwarded by line {line} are logged with the address ({targets[0]})."
        yield fail("access log", sentence, "access_log off;")
    words = holds.get("error_log", [[]])[-1]
    if words[:1] != ["/dev/null"] and words[1:2] not in (["crit"], ["alert"], ["emerg"]):
        sentence = f"Errors at line {line} are logged with the sender's address."
        yield warn("error log", sentence, "error_log /dev/null crit;")
    yield from _nginx_bodies(place)
    missing = [name for name in ("limit_conn", "limit_req") if name not in holds]
    if missing:
        sentence = f"At line {line} nothing limits requests of one address ({', '.join(missing)})."
        yield warn("limits", sentence, "See deploy/nginx.conf.")
    listens = holds.get("listen", [])
    if listens and not any("ssl" in words or "quic" in words for words in listens):
        yield warn("TLS", f"Reports come to line {line} without TLS.", "listen 443 ssl;")


def _nginx_bodies(place: _Place) -> Iterator[Finding]:
    bodies = f"Bodies at line {place.line}"
    if place.last("client_body_in_file_only", "off") != "off":
        yield fail("bodies", f"{bodies} are written to files.", "client_body_in_file_only off;")
    elif place.last("proxy_request_buffering", "on") != "off":
        buffer = _size(place.last("client_body_buffer_size", "16k"))
        largest = _size(place.last("client_max_body_size", "1m"))
        if largest == 0 or buffer < largest:
            sentence = f"{bodies} that do not fit in a buffer are written to files."
            yield fail("bodies", sentence, "client_max_body_size 1m; client_body_buffer_size 1m;")
    else:
        sentence = f"{bodies} wait at the collector, not in the proxy."
        way_out = "Remove proxy_request_buffering; client_body_buffer_size 1m;"
        yield warn("slow bodies", sentence, way_out)


def _nginx_directive(one: Directive) -> Iterator[Finding]:
    name, text, line = one.name, one.text, f"Line {one.line}"
    match name:
        case "proxy_set_header" | "proxy_bind" | "fastcgi_param" | "grpc_set_header":
            if _NGINX_SENDER.search(text) or (one.header in _SENDERS and any(one.words[1:])):
                sentence = f"{line} forwards who sends a report: {name} {one.header}."
                yield fail("addresses", sentence, 'Remove it, or set the header to "".')
        case "real_ip_header" | "set_real_ip_from" | "proxy_protocol":
            yield fail("addresses", f"{line} restores the sender's address ({name}).", "Remove it.")
        case "proxy_cache_methods" if "POST" in one.words:
            yield fail("cache", f"{line} caches reports.", "Remove POST.")
        case "proxy_store" if text != "off":
            yield fail("cache", f"{line} stores responses in files.", "proxy_store off;")
        case "mirror" if text != "off":
            yield fail("mirror", f"{line} sends a copy elsewhere.", "mirror off;")
        case "userid" if text in ("on", "v1"):
            yield fail("cookies", f"{line} sets a cookie.", "Remove it.")
        case "add_header" if text.lower().startswith("set-cookie"):
            yield fail("cookies", f"{line} sets a cookie.", "Remove it.")
        case "include" if not text.endswith("mime.types"):
            sentence = f"{line} includes {text}, which is not read."
            yield warn("include", sentence, "Give the output of nginx -T instead.")


def _size(text: str) -> int:
    matched = re.fullmatch(r"(\d{1,12})([kmg]?)", text.lower())
    if matched is None:
        raise InputError(f"{text[:20]!r} is no size")
    return int(matched[1]) * _SIZES[matched[2]]


def _check_caddy(directives: list[Directive]) -> Iterator[Finding]:
    options = [inner for one in directives if one.name == "{" for inner in one.block]
    logs = [inner for one in options if one.name == "log" for inner in one.block]
    silenced = {word for one in logs for word in one.words}
    if not silenced & {"http.log.error", "discard", "http"}:
        sentence = "Errors are logged with the sender's address."
        yield warn("error log", sentence, "{ log { exclude http.log.error } } at the top.")
    for site in directives:
        if site.name == "{":
            continue
        if site.name.startswith("http://") or site.name.endswith(":80"):
            yield warn("TLS", f"{site.name} is without TLS.", "Name the site without http://.")
        inside = list(_every([site]))
        if not any(one.name == "rate_limit" for one in inside):
            yield warn(
                "limits",
                f"In {site.name} nothing limits one address: Caddy cannot without a plugin.",
                "Build it with github.com/mholt/caddy-ratelimit, or use nginx.",
            )
        for one in inside:
            yield from _caddy_directive(one)


def _caddy_directive(one: Directive) -> Iterator[Finding]:
    name, text, line = one.name, one.text.lower(), f"Line {one.line}"
    match name:
        case "log" | "log_append":
            yield fail("access log", f"{line} logs requests with their addresses.", "Remove it.")
        case "reverse_proxy":
            if not {inner.name for inner in one.block} & {"request_buffers", "buffer_requests"}:
                sentence = f"Bodies at line {one.line} wait at the collector, not in the proxy."
                yield warn("slow bodies", sentence, "request_buffers 1MiB")
            removed = {inner.header for inner in one.block if inner.name == "header_up"}
            if not removed & {"-x-forwarded-for", "-x-forwarded-*", "-*"}:
                sentence = f"{line} forwards the sender's address, which is Caddy's default."
                yield fail("addresses", sentence, "header_up -X-Forwarded-For")
        case "header_up" | "request_header" if not one.header.startswith("-"):
            named = one.header.lstrip("+?>") in _SENDERS and len(one.words) > 1
            if named or _CADDY_SENDER.search(text):
                yield fail("addresses", f"{line} forwards who sends a report.", "Remove it.")
        case "header" if "set-cookie" in text and "-set-cookie" not in text:
            yield fail("cookies", f"{line} sets a cookie.", "Remove it.")
        case "cache":
            yield warn("cache", f"{line} caches.", "Check that it caches GET only.")
        case "import":
            sentence = f"{line} imports {one.text}, which is not read."
            yield warn("include", sentence, "Give that file too.")


def read_nginx(text: str) -> list[Directive]:
    """Read nginx's language.

    >>> [server] = read_nginx("server { listen 443 ssl; access_log off; }")
    >>> [(one.name, one.words) for one in server.block]
    [('listen', ['443', 'ssl']), ('access_log', ['off'])]
    """

    def statements() -> Iterator[_Statement]:
        for words, sign, line in _statements(_NGINX, text):
            if bool(words) == (sign == "}") and sign != ";":
                raise InputError(f"line {line} is not nginx's language")
            if sign == "":
                raise InputError("it ends within a directive")
            yield [word.lower() for word in words[:1]] + words[1:], sign, line

    return _tree(statements())


def read_caddy(text: str) -> list[Directive]:
    r"""Read a Caddyfile; its global options are a directive with a brace for a name.

    >>> [site] = read_caddy("a.example {\n  reverse_proxy b:1 {\n    header_up -X y\n  }\n}")
    >>> site.name, site.block[0].words, site.block[0].block[0].words
    ('a.example', ['b:1'], ['-X', 'y'])
    """

    def statements() -> Iterator[_Statement]:
        # A site that is the only one may stand without braces: its first line is its address.
        for words, _, line in _statements(_CADDY, text):
            if words == ["}"]:
                yield [], "}", line
            elif words[-1:] == ["{"]:
                yield words[:-1] or words, "{", line
            else:
                yield words, ";", line

    return _tree(statements())


_Statement = tuple[list[str], str, int]
"""Words, the sign that ends them, and the line of the first word."""


def _statements(language: re.Pattern[str], text: str) -> Iterator[_Statement]:
    """Split a text at its signs; words after the last sign end with an empty one."""
    place, line, begins = 0, 1, 1
    words: list[str] = []
    while place < len(text):
        matched = language.match(text, place)
        if matched is None:
            raise InputError(f"line {line} cannot be read")
        kind = str(matched.lastgroup)
        if kind == "sign":
            yield words, matched[0], begins if words else line
            words = []
        elif kind != "space":
            begins = begins if words else line
            words.append(matched[kind])
        line += matched[0].count("\n")
        place = matched.end()
    if words:
        yield words, "", begins


def _tree(statements: Iterable[_Statement]) -> list[Directive]:
    top: list[Directive] = []
    open_blocks = [top]
    for words, sign, line in statements:
        if sign == "}":
            open_blocks.pop()
        elif words:
            one = Directive(words[0], words[1:], line)
            open_blocks[-1].append(one)
            if sign == "{":
                open_blocks.append(one.block)
        if not 1 <= len(open_blocks) <= _DEEPEST:
            raise InputError(f"the braces do not fit at line {line}")
    if len(open_blocks) != 1:
        raise InputError("it ends within a block")
    return top
