"""Plans and certificates that the pinned key signed."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from shoal.device.outbox import (
    HttpTransport,
    TransportError,
    read_plan,
)
from shoal.errors import InputError
from shoal.support.files import canonical_json
from tests.device.outbox_help import (
    ANSWER,
    CROWD,
    PLAN,
    Answer,
    box,
    certificate_of,
    reply,
)


class TestSigned:
    @pytest.fixture
    def signer(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(bytes(range(32)))

    @staticmethod
    def text(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).decode().rstrip("=")

    def test_a_plan_of_the_pinned_key(self, server, signer):
        body = canonical_json({"id": PLAN.id} | PLAN.to_json())
        key = signer.public_key().public_bytes_raw()
        server.answers = [
            reply(200, body, Shoal_Signature=text, Shoal_Key=self.text(key))
            for text in (self.text(signer.sign(body)), self.text(signer.sign(body)) + "==")
        ]
        for pinned in (key, self.text(key)):
            content = HttpTransport(server.url, public_key=pinned).fetch_plan(PLAN.id)
            assert read_plan(content, PLAN.id) == PLAN

    @pytest.mark.parametrize("kind", ["none", "other key", "other bytes", "short", "nonsense"])
    def test_anything_else_is_not_used(self, server, signer, kind, tmp_path):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        body = canonical_json(PLAN.to_json())
        other = Ed25519PrivateKey.generate()
        text = {
            "other key": self.text(other.sign(body)),
            "other bytes": self.text(signer.sign(body + b" ")),
            "short": self.text(signer.sign(body)[:-1]),
            "nonsense": "%" * 86,
        }.get(kind)
        # The key that comes along proves nothing: whoever sends the plan sends it too.
        headers = {"Shoal_Key": self.text(other.public_key().public_bytes_raw())}
        server.answers = [reply(200, body, **headers | ({"Shoal_Signature": text} if text else {}))]
        transport = HttpTransport(server.url, public_key=signer.public_key().public_bytes_raw())
        with pytest.raises(TransportError, match=r"signature of the pinned|signed with the pinned"):
            box(tmp_path, transport).plan(PLAN.id)
        assert not list((tmp_path / "plans").iterdir())

    @pytest.fixture
    def changed(self, tmp_path) -> tuple[list[str], Any]:
        """The public keys of a collector that changed its key twice, and its signer."""
        from shoal.collector.signing import Signer, change_key

        (tmp_path / "collector").mkdir()
        keys = [Signer(tmp_path / "collector").public_key]
        for _ in range(2):
            old, new = change_key(tmp_path / "collector")
            assert old == keys[-1]
            keys.append(new)
        return keys, Signer(tmp_path / "collector")

    def answers(self, signer, links=None) -> list[Answer]:
        body = canonical_json({"id": PLAN.id} | PLAN.to_json())
        links = [link._asdict() for link in signer.links] if links is None else links
        return [
            reply(200, body, Shoal_Signature=signer.sign(body), Shoal_Key=signer.public_key),
            reply(200, json.dumps({"ed25519": signer.public_keys, "links": links}).encode()),
        ]

    def test_a_pinned_key_leads_to_the_one_of_today(self, server, changed):
        keys, signer = changed
        assert signer.public_keys == keys[::-1]
        for pinned in keys:
            server.answers = self.answers(signer)
            content = HttpTransport(server.url, public_key=pinned).fetch_plan(PLAN.id)
            assert read_plan(content, PLAN.id) == PLAN
        assert len(server.requests) == 5, "the newest key needs no list"

    @pytest.mark.parametrize(
        "change",
        [
            lambda links: [],
            lambda links: links[1:],
            lambda links: links[::-1],
            lambda links: [links[0] | {"signature": links[1]["signature"]}, links[1]],
            lambda links: [links[0] | {"next": "A" * 43}, links[1]],
            lambda links: [links[0] | {"next": "A"}, links[1]],
            lambda links: [5, None, links[0] | {"signature": 7}, links[1]],
            lambda links: "links",
            lambda links: [links[0]] * 1001,
        ],
    )
    def test_no_link_no_trust(self, server, changed, change):
        """A list of keys is worth what the pinned key signed of it."""
        keys, signer = changed
        links = change([link._asdict() for link in signer.links])
        server.answers = self.answers(signer, links)
        with pytest.raises(TransportError, match="signed with the pinned"):
            HttpTransport(server.url, public_key=keys[0]).fetch_plan(PLAN.id)

    def test_a_signature_of_a_document_is_no_link(self, changed):
        from shoal.agreement.signatures import check_signature
        from shoal.support.keys import link_content

        keys, signer = changed
        content = base64.urlsafe_b64decode(keys[0] + "=")
        public = base64.urlsafe_b64decode(signer.public_key + "=")
        with pytest.raises(TransportError):
            check_signature(public, link_content(content), signer.sign(content))

    @pytest.mark.parametrize("key", [b"", bytes(31), "A" * 42, "!" * 43, 5, "é" * 43])
    def test_what_is_no_key(self, key):
        with pytest.raises(InputError, match="32 bytes, or 43 characters"):
            HttpTransport("https://example.org", public_key=key)

    def test_a_certificate_of_the_pinned_key(self, server, signer, tmp_path):
        body, key = certificate_of(CROWD), signer.public_key().public_bytes_raw()
        transport = HttpTransport(server.url, public_key=key)
        server.answers = [
            reply(
                200,
                body,
                Shoal_Signature=self.text(signer.sign(body + b" ")),
                Shoal_Key=self.text(key),
            ),
            reply(200, body, Shoal_Signature=self.text(signer.sign(body))),
        ]
        with pytest.raises(TransportError, match="the certificate was not signed with the pinned"):
            box(tmp_path, transport, recompute=False).answer(CROWD, ANSWER)
        assert box(tmp_path, transport, recompute=False).answer(CROWD, ANSWER).state == "waiting"
        assert [path for _, path, *_ in server.requests] == [
            f"/v1/plans/{CROWD.id}/certificate"
        ] * 2
        with pytest.raises(InputError, match="pinned key"):
            HttpTransport(server.url).fetch_certificate(CROWD.id)

    def test_without_a_pinned_key_the_id_is_what_counts(self, server):
        server.answers = [reply(200, canonical_json(PLAN.to_json()), Shoal_Signature="x")]
        assert read_plan(HttpTransport(server.url).fetch_plan(PLAN.id), PLAN.id) == PLAN
