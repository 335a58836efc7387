"""Client for the analyzer's API; verifies its signatures.

The analyzer's signing key is that of its public file. When the analyzer rotates its key, the old
key signs the new one, and the relay pins that. Chunks are signed with the relay's own key, which
the analyzer knows together with the relay's token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress

from shoal.errors import InputError, ReportError, TransportError
from shoal.protocol.encryption import CHUNK_TYPE, CrowdKey
from shoal.protocol.signatures import (
    MAX_SIGNERS,
    SIGNATURE,
    check_public_key,
    check_signature,
    key_text,
    link_content,
)
from shoal.server.core.observability import LOG
from shoal.server.core.parties import Peer, PeerReply
from shoal.server.relay.frozen_crowds import FrozenCrowd
from shoal.server.relay.open_plan import Document, Wanted
from shoal.server.storage.key_file import Signer
from shoal.support.files import canonical_json, strict_json

LARGEST_KEYS = 1 << 20


class Refused(TransportError):  # noqa: N818  it is an answer
    """The analyzer answered with a problem."""

    def __init__(self, status: int, name: str) -> None:
        super().__init__(f"the analyzer answered {status} {name}".rstrip() + ".")
        self.status, self.name = status, name


class AnalyzerClient:
    """The analyzer as a relay sees it. Its methods block: they are called in threads.

    `pin` keeps a key that a link led to.
    """

    def __init__(
        self,
        transport: Peer,
        token: str,
        signer: Signer,
        pinned: bytes,
        pin: Callable[[bytes], None],
    ) -> None:
        self._transport, self._token, self._signer = transport, token, signer
        self._pinned, self._pin = pinned, pin
        self._signers = ""

    def stop(self) -> None:
        self._transport.stop()

    # Documents that are passed on

    def plan(self, plan_id: str) -> Document:
        document = self._signed("plan", "GET", f"/v1/plans/{plan_id}")
        if _json(document.content, "plan").get("id") != plan_id:
            raise TransportError("the analyzer's document is of another plan.")
        return document

    def certificate(self, plan_id: str) -> Document:
        return self._signed("certificate", "GET", f"/v1/plans/{plan_id}/certificate")

    def keys(self) -> Document:
        """Return the analyzer's list of its keys, which has no signature, and pin a new key."""
        reply = self._ask("GET", "/v1/keys")
        if len(reply.content) > LARGEST_KEYS:
            raise TransportError("the analyzer's list of its keys is too long.")
        signing, links = _key_list(reply.content)
        if signing[0] != self._pinned and _leads_to(signing[0], self._pinned, links):
            self._pin(signing[0])
            self._pinned = signing[0]
            LOG.warning(
                "the analyzer changed its key", extra={"facts": {"key": key_text(signing[0])}}
            )
        if self._pinned not in signing:
            raise TransportError(
                f"the analyzer does not sign with the pinned key {key_text(self._pinned)} any more."
                " Ask its operator for a new public file: shoal parties setup --other FILE."
            )
        self._signers = ", ".join(map(key_text, signing))
        return Document(reply.content, "", self._signers)

    # Crowds

    def crowd_key(self, wanted: Wanted, relay: str, deadline_days: int) -> Document:
        """Return the key of a crowd for the data named `relay`, or of a later crowd."""
        asked = {"window": wanted.window, "crowd": wanted.place}
        body = canonical_json(asked | {"relay": relay, "deadline_days": deadline_days})
        path = f"/v1/plans/{wanted.plan_id}/crowd-keys"
        signed = self._signed("key", "POST", path, body, {"Content-Type": "application/json"})
        try:
            key = CrowdKey.from_bytes(signed.content)
        except ReportError as error:
            raise TransportError("the analyzer's key document cannot be read.") from error
        if (key.plan_id, key.window) != (wanted.plan_id, wanted.window) or key.crowd < wanted.place:
            raise TransportError("the analyzer's key is of another crowd.")
        return signed

    def discard(self, crowd: FrozenCrowd) -> None:
        """Tell the analyzer that a crowd was discarded, so that it destroys the crowd's key."""
        body = canonical_json(crowd.about | {"state": "discarded"})
        self._receipt(crowd, "POST", "discard", "application/json", body, crowd.about)

    def send_chunk(self, crowd: FrozenCrowd, number: int, content: bytes) -> object:
        """Send a chunk; return the signed state of the crowd, "receiving" or "complete"."""
        digest = hashlib.sha256(content).hexdigest()
        expected = crowd.about | {"chunk": number, "digest": digest}
        receipt = self._receipt(crowd, "PUT", f"chunks/{number}", CHUNK_TYPE, content, expected)
        if receipt.get("state") not in ("receiving", "complete"):
            raise TransportError("the analyzer's receipt has no state of the crowd.")
        return receipt["state"]

    def _receipt(
        self,
        crowd: FrozenCrowd,
        method: str,
        end: str,
        media: str,
        body: bytes,
        expected: dict[str, object],
    ) -> dict[str, object]:
        """Send something about a crowd, signed; return the receipt, which says what it is for."""
        path = f"/v1/plans/{crowd.plan_id}/crowds/{crowd.window}/{crowd.place}/{end}"
        headers = {"Content-Type": media, **self._signer.headers(body)}
        receipt = _json(self._signed("receipt", method, path, body, headers).content, "receipt")
        if {name: receipt.get(name) for name in expected} != expected:
            raise TransportError("the analyzer's receipt is for something else.")
        return receipt

    # Signatures

    def _signed(
        self,
        what: str,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Document:
        """Return a document with a signature of the pinned key."""
        reply = self._ask(method, path, body, headers)
        signature = reply.headers.get(SIGNATURE.lower(), "")
        if not self._signers:
            self.keys()
        try:
            check_signature(self._pinned, reply.content, signature, what)
        except TransportError:
            known = self._pinned
            self.keys()
            if self._pinned == known:
                raise
            check_signature(self._pinned, reply.content, signature, what)
        return Document(reply.content, signature, self._signers)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> PeerReply:
        sent = dict(headers or {})
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        reply = self._transport.ask(method, path, body, sent)
        if reply.status != 200:
            raise Refused(reply.status, _problem_name(reply.content))
        return reply


def _key_list(content: bytes) -> tuple[list[bytes], list[object]]:
    """Return the keys that sign, the newest first, and the links between keys."""
    document = _json(content, "list of keys")
    signing, links = document.get("ed25519"), document.get("links")
    try:
        if not isinstance(signing, list) or not 1 <= len(signing) <= MAX_SIGNERS:
            raise InputError(f"1 to {MAX_SIGNERS} keys sign.")
        keys = [check_public_key(str(key)) for key in signing]
    except InputError as error:
        raise TransportError("the analyzer's list of its keys cannot be read.") from error
    return keys, links[:MAX_SIGNERS] if isinstance(links, list) else []


def _leads_to(newest: bytes, pinned: bytes, links: list[object]) -> bool:
    """Whether the pinned key signed the newest one."""
    for link in links:
        if isinstance(link, dict) and link.get("key") == key_text(pinned):
            with suppress(TransportError):
                check_signature(pinned, link_content(newest), link.get("signature"))
                return True
    return False


def _json(content: bytes, what: str) -> dict[str, object]:
    try:
        document = strict_json(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise TransportError(f"the analyzer's {what} cannot be read.")
    return document


def _problem_name(content: bytes) -> str:
    """Return the name of a problem, if it looks like one of ours: it goes to the log."""
    try:
        name = str(_json(content, "problem").get("type")).removeprefix("urn:shoal:problem:")
    except TransportError:
        return ""
    return name if name.replace("-", "").isalnum() and name.isascii() and len(name) < 40 else ""
