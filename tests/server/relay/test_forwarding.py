"""Whatever the analyzer answers: the same bytes, the same crowd, until it has signed for all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoal import Plan
from shoal.errors import TransportError
from shoal.protocol.signatures import check_public_key, check_signature, key_text, link_content
from shoal.server.core.parties import PeerReply
from shoal.server.relay import forwarding, shuffled_chunks
from shoal.server.relay.service import Relay
from tests.server.store_help import told

from .relay_help import (
    LONG,
    LONGEST,
    WHOLE,
    FakeAnalyzer,
    RelayWorld,
    contents_of,
    in_relay,
    made,
    problem,
    reachable,
    sealed,
    story,
    until,
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once, and cut small crowds into several chunks."""
    monkeypatch.setattr(forwarding, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(forwarding, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(shuffled_chunks, "LARGEST_CHUNK", 1100)


def same_bytes(analyzer: FakeAnalyzer) -> None:
    """Every chunk was sent as the same bytes each time, and no crowd was cut in two ways."""
    for received in analyzer.crowds.values():
        for number, body in received.tries:
            assert body == received.chunks.get(number, body)


class TestOrder:
    @pytest.mark.parametrize("plan", [WHOLE, LONG], ids=lambda plan: plan.survey.name)
    def test_the_order_of_arrival_cannot_be_seen(self, plan: Plan, tmp_path: Path) -> None:
        """The bits are the same in every run; by chance an order is kept with 1/20! at most."""
        reports = made(plan, 20, seed=1)

        async def live(world: RelayWorld) -> None:
            for report in reports:
                await world.report(plan, [report])
            await world.forwarded(plan, 1)

        analyzer = story(live, tmp_path, plan)
        (where,) = analyzer.complete(plan)
        arrived = analyzer.opened(where)
        in_order = [report.content for report in reports]
        assert sorted(arrived) == sorted(in_order)
        assert arrived != in_order
        assert len(analyzer.crowds[where].chunks) > 1

    def test_nothing_leaves_before_the_crowd_is_whole(self, tmp_path: Path) -> None:
        async def live(world: RelayWorld) -> None:
            for report in made(WHOLE, 19, seed=2):
                await world.report(WHOLE, [report])
                await world.relay.service.in_store(world.relay.store.sweep)
                await world.relay.forwarder.forward()
            assert world.analyzer.crowds == {}
            assert not any(method == "PUT" for method, _ in world.analyzer.asked)

        analyzer = story(live, tmp_path, WHOLE)
        assert analyzer.crowds == {}


def times(count: int, fault: Callable[[], Any]) -> Callable[[str, str], Any]:
    """Let a fault happen to the first so many chunks that are sent."""
    left = [count]

    def happens(method: str, path: str) -> Any:
        if method != "PUT" or left[0] == 0:
            return None
        left[0] -= 1
        return fault()

    return happens


def lost() -> Any:
    raise TransportError("nobody answers.")


def unsigned(reply: PeerReply) -> PeerReply:
    return reply._replace(headers={})


def forged(reply: PeerReply) -> PeerReply:
    return FakeAnalyzer().signed(reply.content)


def of_another(analyzer: FakeAnalyzer, reply: PeerReply) -> PeerReply:
    """A receipt that the analyzer signed, for another chunk."""
    content = reply.content.replace(b'"chunk": ', b'"chunk": 1')
    assert content != reply.content
    return analyzer.signed(content)


def lost_on_the_way_back(reply: PeerReply) -> PeerReply:
    raise TransportError("the answer was cut off.")


FAULTS = {
    "409": lambda: problem(409, "chunk-differs"),
    "410": lambda: problem(410, "window-expired"),
    "500": lambda: PeerReply(500, {}, b"<html>"),
    "200 with nonsense": lambda: PeerReply(200, {}, b"\xff{"),
    "nobody": lost,
    "no signature": lambda: unsigned,
    "another's signature": lambda: forged,
    "cut off": lambda: lost_on_the_way_back,
}
ANOTHER = "another receipt"


class TestRefusals:
    @pytest.mark.parametrize("fault", [*FAULTS, ANOTHER])
    def test_a_crowd_is_never_cut_anew(self, fault: str, tmp_path: Path) -> None:
        reports = made(WHOLE, 20, seed=3)
        analyzer = FakeAnalyzer(WHOLE)
        faults = FAULTS | {ANOTHER: lambda: partial(of_another, analyzer)}
        analyzer.fault = times(5, faults[fault])

        async def live(world: RelayWorld) -> None:
            await world.report(WHOLE, reports)
            await world.forwarded(WHOLE, 1)
            assert b"shoal_forward_failures_total 5.0" in world.relay.metrics_text()

        story(live, tmp_path, WHOLE, analyzer)
        (where,) = analyzer.complete(WHOLE)
        assert contents_of(reports) == dict.fromkeys(analyzer.opened(where), 1)
        same_bytes(analyzer)

    @pytest.mark.parametrize("answer", [(410, "window-expired"), (409, "other-chunk")])
    def test_refused_for_good_it_is_discarded_whole(
        self, answer: tuple[int, str], tmp_path: Path
    ) -> None:
        analyzer = FakeAnalyzer(WHOLE)
        analyzer.fault = times(10, lambda: problem(*answer))
        reports = made(WHOLE, 40, seed=4)

        async def live(world: RelayWorld) -> None:
            await world.report(WHOLE, reports[:20])
            await until(lambda: b"shoal_crowds_discarded_total 1.0" in world.relay.metrics_text())
            await until(lambda: b"shoal_crowds_refused_total 1.0" in world.relay.metrics_text())
            assert "the analyzer refused a crowd for good" in world.log.getvalue()
            await world.report(WHOLE, reports[:20])  # known: nothing of it comes a second time
            await world.report(WHOLE, reports[20:])
            await world.forwarded(WHOLE, 1)
            await until(lambda: not list((tmp_path / "chunks").iterdir()))

        story(live, tmp_path, WHOLE, analyzer)
        (where,) = analyzer.complete(WHOLE)
        assert where == (WHOLE.id, 0, 2)
        assert contents_of(reports[20:]) == dict.fromkeys(analyzer.opened(where), 1)

    def test_an_analyzer_that_lost_chunks_gets_all_again(self, tmp_path: Path) -> None:
        analyzer = FakeAnalyzer(WHOLE)

        def forgets(method: str, path: str) -> Any:
            received = analyzer.crowds.get((WHOLE.id, 0, 1))
            if method == "PUT" and received and len(received.tries) == 1:
                received.chunks.clear()
            return None

        analyzer.fault = forgets
        reports = made(WHOLE, 20, seed=5)

        async def live(world: RelayWorld) -> None:
            await world.report(WHOLE, reports)
            await world.forwarded(WHOLE, 1)

        story(live, tmp_path, WHOLE, analyzer)
        same_bytes(analyzer)
        (where,) = analyzer.complete(WHOLE)
        assert contents_of(reports) == dict.fromkeys(analyzer.opened(where), 1)

    def test_a_restart_goes_on_with_the_same_bytes(self, tmp_path: Path) -> None:
        analyzer = FakeAnalyzer(WHOLE)
        analyzer.fault = times(10**6, FAULTS["cut off"])  # it has the chunks, and nobody knows
        reports = made(WHOLE, 20, seed=6)

        async def fails(world: RelayWorld) -> None:
            await world.report(WHOLE, reports)
            await until(lambda: len(analyzer.crowds) == 1)

        for _ in range(3):
            story(fails, tmp_path, WHOLE, analyzer)
        analyzer.fault = lambda method, path: None

        async def arrives(world: RelayWorld) -> None:
            await world.forwarded(WHOLE, 1)

        story(arrives, tmp_path, WHOLE, analyzer)
        same_bytes(analyzer)
        (where,) = analyzer.complete(WHOLE)
        assert contents_of(reports) == dict.fromkeys(analyzer.opened(where), 1)


class TestPinning:
    def test_no_other_key_is_taken(self, tmp_path: Path) -> None:
        analyzer = FakeAnalyzer(WHOLE)

        async def live(world: RelayWorld) -> None:
            await world.publish(WHOLE)
            assert world.relay.store.pinned_key() == analyzer.public_key

        in_relay(live, tmp_path, analyzer)
        other = FakeAnalyzer(WHOLE)

        async def refuses(world: RelayWorld) -> None:
            await until(lambda: "Ask its operator for a new public file" in world.log.getvalue())
            assert world.relay.cache.open_keys.keys() == {(WHOLE.id, 0)}  # those from before
            kept = world.relay.cache.document(f"plan {WHOLE.id}")
            assert kept[2] == key_text(analyzer.public_key)  # type: ignore[index]

        in_relay(refuses, tmp_path, other, key=analyzer.public_key)

    def test_a_key_that_is_not_pinned_is_not_used(self, tmp_path: Path) -> None:
        analyzer, other = FakeAnalyzer(WHOLE), FakeAnalyzer(WHOLE)
        analyzer.fault = lambda method, path: (
            (lambda reply: other.signed(reply.content)) if method == "POST" else None
        )

        async def live(world: RelayWorld) -> None:
            await world.relay.publish(WHOLE)
            await until(lambda: "the analyzer gave no keys" in world.log.getvalue())
            assert (await world.get_key(WHOLE)).status_code == 503
            upload = sealed(WHOLE, analyzer.crowd_key(WHOLE, 0, 1), made(WHOLE, 1, seed=7))
            assert await world.post(upload) == 503

        in_relay(live, tmp_path, analyzer)

    @told(in_relay, WHOLE)
    async def test_a_signed_link_leads_to_a_new_key(self, world: RelayWorld) -> None:
        analyzer = world.analyzer
        first = analyzer.public_key
        await world.publish(WHOLE)
        for number in (1, 2):
            analyzer.signing.change()
            await world.report(WHOLE, made(WHOLE, 20, seed=7 + number))
            await world.forwarded(WHOLE, number)
            world.relay.prefetcher.wake()
            await until(lambda: world.relay.store.pinned_key() == analyzer.public_key)
            analyzer.signing.end_overlap()
        assert analyzer.public_key != first

    def test_a_link_that_the_pinned_key_did_not_sign_leads_nowhere(self, tmp_path: Path) -> None:
        analyzer, other = FakeAnalyzer(WHOLE), FakeAnalyzer(WHOLE)
        pinned = analyzer.public_key

        def forged(reply: PeerReply) -> PeerReply:
            document = json.loads(reply.content)
            document["ed25519"] = [key_text(other.public_key), key_text(pinned)]
            signature = key_text(other.signing.secrets[0].sign(link_content(other.public_key)))
            link = {"key": key_text(pinned), "next": key_text(other.public_key)}
            document["links"] = [link | {"signature": signature}]
            return reply._replace(content=json.dumps(document).encode())

        analyzer.fault = lambda method, path: forged if path == "/v1/keys" else None

        async def live(world: RelayWorld) -> None:
            await world.publish(WHOLE)
            assert world.relay.client._pinned == pinned

        in_relay(live, tmp_path, analyzer)

    @told(in_relay, WHOLE)
    async def test_a_change_reaches_every_document_and_so_does_its_end(
        self, world: RelayWorld
    ) -> None:
        """Devices with the old key and with the new one find their signature during the overlap."""
        analyzer = world.analyzer
        paths = [f"/v1/plans/{WHOLE.id}{more}" for more in ("", "/certificate", "/crowd-key")]

        async def signers(world: RelayWorld) -> set[str]:
            found = set()
            for path in paths:
                answer = await world.clients["public"].get(path)
                keys = answer.headers["shoal-key"].split(", ")
                for key in keys:
                    check_signature(
                        check_public_key(key), answer.content, answer.headers["shoal-signature"]
                    )
                found.add(", ".join(keys))
            keys = (await world.clients["public"].get("/v1/keys")).json()["ed25519"]
            return found | {", ".join(keys)}

        async def reach(world: RelayWorld) -> None:
            world.relay.prefetcher.wake()
            wanted = {", ".join(map(key_text, analyzer.signing.keys))}
            async with asyncio.timeout(LONGEST):
                while await signers(world) != wanted:
                    await asyncio.sleep(0.01)

        await world.publish(WHOLE)
        key = await world.key(WHOLE)
        for change in (analyzer.signing.change, analyzer.signing.end_overlap):
            change()
            await reach(world)
            assert await world.key(WHOLE) == key
        otherwise, signer = world.relay.store.signed_otherwise, key_text(analyzer.public_key)
        async with asyncio.timeout(LONGEST):  # the crowds after the open one too
            while await world.relay.service.in_store(otherwise, signer):
                await asyncio.sleep(0.01)

    @told(in_relay, WHOLE)
    async def test_an_open_crowd_keeps_its_key(self, world: RelayWorld) -> None:
        analyzer = world.analyzer
        await world.publish(WHOLE)
        key = await world.key(WHOLE)
        analyzer.private.clear()
        analyzer.signing.change()
        world.relay.prefetcher.wake()
        await until(lambda: "key of an open crowd is another one" in world.log.getvalue())
        assert await world.key(WHOLE) == key

    @told(in_relay, WHOLE)
    async def test_the_key_of_an_earlier_crowd_is_not_used(self, world: RelayWorld) -> None:
        analyzer = world.analyzer

        def first(reply: PeerReply) -> PeerReply:
            return analyzer.signed(analyzer.crowd_key(WHOLE, 0, 1).to_bytes())

        analyzer.fault = lambda method, path: first if method == "POST" else None
        await world.publish(WHOLE)
        await until(lambda: "is of another crowd" in world.log.getvalue())
        crowds = await world.relay.service.in_store(world.relay.store.crowds, WHOLE.id)
        assert [one.crowd for one in crowds] == [1]

    def test_the_key_of_a_later_crowd_opens_that_one(self, tmp_path: Path) -> None:
        """The analyzer gave the wanted one to a relay that was replaced."""
        analyzer, later = FakeAnalyzer(WHOLE), []
        reports = made(WHOLE, 20, seed=12)

        def skips(reply: PeerReply) -> PeerReply:
            asked = json.loads(reply.content)["crowd"]
            later.append(max(asked, 4))
            return analyzer.signed(analyzer.crowd_key(WHOLE, 0, later[-1]).to_bytes())

        analyzer.fault = lambda method, path: skips if path.endswith("crowd-keys") else None

        async def live(world: RelayWorld) -> None:
            await world.report(WHOLE, reports)
            await world.forwarded(WHOLE, 1)
            crowds = await world.relay.service.in_store(world.relay.store.crowds, WHOLE.id)
            assert [one.crowd for one in crowds][:3] == [4, 5, 6]

        story(live, tmp_path, WHOLE, analyzer)
        (where,) = analyzer.complete(WHOLE)
        assert where == (WHOLE.id, 0, 4)
        assert contents_of(reports) == dict.fromkeys(analyzer.opened(where), 1)

    @pytest.mark.parametrize("field", ["window", "plan"])
    @told(in_relay, WHOLE)
    async def test_the_key_of_another_crowd_is_not_used(
        self, field: str, world: RelayWorld
    ) -> None:
        analyzer = world.analyzer

        def other(reply: PeerReply) -> PeerReply:
            document = json.loads(reply.content)
            document[field] = "ab" * 32 if field == "plan" else 7
            content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
            return analyzer.signed(content)

        analyzer.fault = lambda method, path: other if method == "POST" else None
        await world.relay.publish(WHOLE)
        await until(lambda: "is of another crowd" in world.log.getvalue())
        assert (await world.get_key(WHOLE)).status_code == 503


def test_over_http_with_a_token_and_a_signature(tmp_path: Path) -> None:
    analyzer = FakeAnalyzer(WHOLE)
    reports = made(WHOLE, 20, seed=9)

    async def live(world: RelayWorld) -> None:
        analyzer.relay_key = world.relay.service.signer.public_key
        await world.publish(WHOLE)
        await world.report(WHOLE, reports)
        await world.forwarded(WHOLE, 1)

    with reachable(analyzer) as url:
        relay = Relay.__init__

        def at_the_url(self: Relay, folder: Path, transport: object, *more: Any, **options: Any):
            relay(self, folder, url, *more, token="shoal_relay_secret", **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Relay, "__init__", at_the_url)
            in_relay(live, tmp_path, analyzer)
    assert set(analyzer.tokens) == {"Bearer shoal_relay_secret"}
    (where,) = analyzer.complete(WHOLE)
    assert contents_of(reports) == dict.fromkeys(analyzer.opened(where), 1)
