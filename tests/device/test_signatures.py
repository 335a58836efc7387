"""Plans and certificates that the pinned key signed."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shoal.device.outbox import HttpTransport, TransportError, read_plan
from shoal.errors import InputError
from shoal.protocol.signatures import check_public_key, check_signature, key_text
from shoal.server.storage.key_file import Signer
from shoal.support.files import canonical_json
from tests.device.outbox_help import ANSWER, CROWD, PLAN, box, certificate_of, reply


class TestSigned:
    @pytest.fixture
    def signer(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(bytes(range(32)))

    def test_a_plan_of_the_pinned_key(self, server, signer):
        body = canonical_json({"id": PLAN.id} | PLAN.to_json())
        key = signer.public_key().public_bytes_raw()
        server.answers = [
            reply(200, body, Shoal_Signature=text, Shoal_Key=key_text(key))
            for text in (key_text(signer.sign(body)), key_text(signer.sign(body)) + "==")
        ]
        for pinned in (key, key_text(key)):
            content = HttpTransport(server.url, public_key=pinned).fetch_plan(PLAN.id)
            assert read_plan(content, PLAN.id) == PLAN

    @pytest.mark.parametrize("kind", ["none", "other key", "other bytes", "short", "nonsense"])
    def test_anything_else_is_not_used(self, server, signer, kind, tmp_path):
        body = canonical_json(PLAN.to_json())
        other = Ed25519PrivateKey.generate()
        text = {
            "other key": key_text(other.sign(body)),
            "other bytes": key_text(signer.sign(body + b" ")),
            "short": key_text(signer.sign(body)[:-1]),
            "nonsense": "%" * 86,
        }.get(kind)
        # The key that comes along proves nothing: whoever sends the plan sends it too.
        headers = {"Shoal_Key": key_text(other.public_key().public_bytes_raw())}
        server.answers = [reply(200, body, **headers | ({"Shoal_Signature": text} if text else {}))]
        transport = HttpTransport(server.url, public_key=signer.public_key().public_bytes_raw())
        with pytest.raises(TransportError, match=r"signature of the pinned|signed with the pinned"):
            box(tmp_path, transport).plan(PLAN.id)
        assert not list((tmp_path / "plans").iterdir())

    def test_old_and_new_key_until_the_overlap_ends(self, server, tmp_path):
        signer = Signer(tmp_path)
        old = signer.public_key
        signer.keys.rotate(overlap=3600)
        body = canonical_json({"id": PLAN.id} | PLAN.to_json())

        def fetched(pinned: str) -> bytes:
            headers = {name.replace("-", "_"): text for name, text in signer.headers(body).items()}
            server.answers = [reply(200, body, **headers)]
            return HttpTransport(server.url, public_key=pinned).fetch_plan(PLAN.id)

        for pinned in (old, signer.public_key):
            assert read_plan(fetched(pinned), PLAN.id) == PLAN
        signer.keys.end_overlap()
        assert read_plan(fetched(signer.public_key), PLAN.id) == PLAN
        with pytest.raises(TransportError, match="If the operator changed the key, update the app"):
            fetched(old)
        assert [path for _, path, *_ in server.requests] == [f"/v1/plans/{PLAN.id}"] * 4

    def test_a_link_is_no_signature_of_a_document(self, tmp_path):
        signer = Signer(tmp_path)
        signer.keys.rotate(overlap=3600)
        (link,) = signer.links
        with pytest.raises(TransportError):
            check_signature(check_public_key(link.key), check_public_key(link.next), link.signature)

    @pytest.mark.parametrize("key", [b"", bytes(31), "A" * 42, "!" * 43, 5, "é" * 43])
    def test_what_is_no_key(self, key):
        with pytest.raises(InputError, match="32 bytes, or 43 characters"):
            HttpTransport("https://example.org", public_key=key)

    def test_a_certificate_of_the_pinned_key(self, server, signer, tmp_path):
        body, key = certificate_of(CROWD), signer.public_key().public_bytes_raw()
        transport = HttpTransport(server.url, public_key=key)
        server.answers = [
            reply(200, body, Shoal_Signature=key_text(signer.sign(signed)), Shoal_Key=key_text(key))
            for signed in (body + b" ", body)
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
