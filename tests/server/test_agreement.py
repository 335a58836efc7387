"""Two parties that set themselves up, and somebody between them who edits, replays and swaps."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from shoal import Plan
from shoal.cli import run
from shoal.errors import InputError, PrivacyRefusal, ShoalError
from shoal.protocol.plan import ONE_OPERATOR, Parties
from shoal.protocol.signatures import SIGNATURE, PublicParty, check_public_key, key_text, read_party
from shoal.server.core import problems
from shoal.server.core.parties import (
    Agreement,
    accept_other,
    known_agreement,
    public_file,
    read_agreement,
    set_up,
)
from shoal.server.doctor.examine import examine
from shoal.server.storage.key_file import EXCHANGE_FILE, SIGNING_FILE, Signer, change_key, open_keys
from shoal.server.storage.key_file import end_overlap as end_key_overlap
from tests.server.analyzer.relay_help import WHOLE, FakeRelay, beside_analyzer
from tests.server.relay.relay_help import FakeAnalyzer, RelayWorld, in_relay

URLS = {"relay": "https://relay.example", "analyzer": "https://analyzer.example"}
DAY = 86_400.0


def make(folder: Path, role: str, **more: object) -> Agreement:
    return set_up(folder / role, role=role, url=URLS[role], **more)  # type: ignore[arg-type]


@pytest.fixture
def relay(tmp_path: Path) -> Agreement:
    return make(tmp_path, "relay", name="Example Foundation")


@pytest.fixture
def analyzer(tmp_path: Path) -> Agreement:
    return make(tmp_path, "analyzer")


def file_of(party: Agreement) -> Path:
    return public_file(party.folder, party.own.role)


def accept(party: Agreement, source: Path | Agreement, **more: object) -> Agreement:
    """Accept a file whose fingerprint is that of the other operator."""
    path = file_of(source) if isinstance(source, Agreement) else source
    return accept_other(party, path, lambda other: True, **more)  # type: ignore[arg-type]


def signed_by(signer: Signer, party: PublicParty, path: Path) -> Path:
    party.write(path, lambda content: signer.headers(content)[SIGNATURE])
    return path


def setup_command(data: Path, *words: str) -> int:
    return run(["parties", "setup", "--data", str(data), *words])


def secrets_of(folder: Path) -> list[bytes]:
    """The private keys in a folder, in every form in which they could be written."""
    raw = [
        key.secret for name in (SIGNING_FILE, EXCHANGE_FILE) for key in open_keys(folder, name).all
    ]
    return [form for key in raw for form in (key, key.hex().encode(), key_text(key).encode())]


class TestSecrets:
    def test_no_private_key_and_no_token_leaves_the_folder(
        self, relay: Agreement, analyzer: Agreement
    ):
        token = accept(relay, analyzer).token("analyzer")
        accept(analyzer, relay)
        for own, other in ((relay, analyzer), (analyzer, relay)):
            secrets = [*secrets_of(own.folder), token.encode(), bytes.fromhex(token[12:])]
            elsewhere = [file_of(own), *other.folder.iterdir()]
            contents = b"".join(path.read_bytes() for path in elsewhere)
            assert not [secret for secret in secrets if secret in contents]
            assert own.folder.stat().st_mode & 0o077 == 0
            for name in (SIGNING_FILE, EXCHANGE_FILE):
                assert (own.folder / name).stat().st_mode & 0o077 == 0

    def test_both_derive_one_token_and_a_third_party_another(
        self, relay: Agreement, analyzer: Agreement, tmp_path: Path
    ):
        token = accept(relay, analyzer).token("analyzer")
        assert accept(analyzer, relay).token("relay") == token
        third = make(tmp_path / "third", "relay")
        assert accept(third, analyzer).token("analyzer") != token
        other = accept(analyzer, relay).secret("verify key", "relay")
        assert other != bytes.fromhex(token[12:])

    def test_a_key_that_makes_the_secret_public_is_refused(
        self, relay: Agreement, analyzer: Agreement, tmp_path: Path
    ):
        """A point of small order: the shared secret would be zero for everybody."""
        weak = replace(analyzer.own, exchange_key=key_text(bytes(32)))
        file = signed_by(Signer(analyzer.folder), weak, tmp_path / "weak.json")
        with pytest.raises(InputError, match="not usable"):
            accept(relay, file)
        assert read_agreement(relay.folder) == relay


class TestOnTheWay:
    """The file passes through the hands of an attacker."""

    def test_no_changed_byte_goes_unnoticed(
        self, relay: Agreement, analyzer: Agreement, tmp_path: Path
    ):
        content, edited = file_of(analyzer).read_bytes(), tmp_path / "edited.json"
        for place in range(len(content) - 1):  # the last one ends the line
            edited.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(ShoalError):
                accept(relay, edited)
        assert read_agreement(relay.folder) == relay

    def test_other_values_are_one_sentence(
        self, relay: Agreement, analyzer: Agreement, tmp_path: Path
    ):
        document = json.loads(file_of(analyzer).read_bytes())
        edited = tmp_path / "edited.json"
        for field in (*document, "more"):
            values: list[object] = [None, 1, [], {}, "", "x" * 1000, "\u202e", ONE_OPERATOR]
            for value in values:
                if document.get(field, 0) != value:
                    edited.write_text(json.dumps(document | {field: value}))
                    with pytest.raises(InputError) as caught:
                        accept(relay, edited)
                    assert "\n" not in str(caught.value)

    def test_a_file_of_the_attacker_has_another_fingerprint(
        self,
        relay: Agreement,
        analyzer: Agreement,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ):
        forged = make(tmp_path / "attacker", "analyzer", name=analyzer.own.name)
        told = ["--other", str(file_of(forged)), "--fingerprint", analyzer.own.fingerprint]
        assert setup_command(relay.folder, *told) == 3
        assert "not the file that the analyzer's operator made" in capsys.readouterr().err
        known = read_agreement(relay.folder)
        assert known is not None
        assert known.missing == ["analyzer"]

    def test_a_swapped_file_is_of_the_wrong_role(
        self, relay: Agreement, capsys: pytest.CaptureFixture[str]
    ):
        assert setup_command(relay.folder, "--other", str(file_of(relay))) == 2
        assert "is the file of a relay; give that of the analyzer" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("days", "reason"), [(31, "makes a new one"), (-1, "the clock of one")]
    )
    def test_a_file_from_another_time(
        self, relay: Agreement, tmp_path: Path, days: int, reason: str
    ):
        old = make(tmp_path / "old", "analyzer", clock=lambda: time.time() - days * DAY)
        with pytest.raises(InputError, match=reason):
            accept(relay, old)

    def test_a_replayed_file_does_not_bring_back_an_address(
        self, relay: Agreement, analyzer: Agreement, tmp_path: Path
    ):
        old = tmp_path / "old.json"
        old.write_bytes(file_of(analyzer).read_bytes())
        moved = set_up(analyzer.folder, url="https://new.example", clock=lambda: time.time() + 10)
        agreed = accept(relay, moved)
        assert agreed.others == {"analyzer": moved.own}
        with pytest.raises(InputError, match="is older than"):
            accept(agreed, old, replaces=True)


class TestKeys:
    def test_one_operator_is_not_two_parties(
        self, relay: Agreement, analyzer: Agreement, tmp_path: Path
    ):
        own, theirs = Signer(relay.folder), Signer(analyzer.folder)
        stolen = replace(analyzer.own, signing_key=own.public_key)
        shared = replace(analyzer.own, exchange_key=relay.own.exchange_key)
        for signer, party in ((own, stolen), (theirs, shared)):
            file = signed_by(signer, party, tmp_path / "same.json")
            with pytest.raises(PrivacyRefusal, match="has a key of this relay"):
                accept(relay, file)

    def test_another_key_is_refused_until_it_replaces_the_known_one(
        self,
        relay: Agreement,
        analyzer: Agreement,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ):
        accept(relay, analyzer)
        other = make(tmp_path / "other", "analyzer")
        told = ["--other", str(file_of(other)), "--fingerprint", other.own.fingerprint]
        assert setup_command(relay.folder, *told) == 3
        assert f"is known ({analyzer.own.fingerprint})" in capsys.readouterr().err
        assert known_agreement(relay.folder, "relay").others == {"analyzer": analyzer.own}
        wrong = [*told[:2], "--fingerprint", analyzer.own.fingerprint, "--replace"]
        assert setup_command(relay.folder, *wrong) == 3
        assert setup_command(relay.folder, *told, "--replace") == 0
        assert known_agreement(relay.folder, "relay").others == {"analyzer": other.own}

    def test_a_key_that_the_known_one_signed_needs_no_telephone(
        self, relay: Agreement, analyzer: Agreement
    ):
        agreed = accept(relay, analyzer)
        change_key(analyzer.folder, overlap_days=90)
        rotated = set_up(analyzer.folder)
        assert rotated.own.signing_key != analyzer.own.signing_key
        followed = accept_other(agreed, file_of(rotated), lambda other: False)
        assert followed.others["analyzer"] == rotated.own
        assert followed.token("analyzer") == agreed.token("analyzer")
        end_key_overlap(analyzer.folder)
        set_up(analyzer.folder)
        with pytest.raises(PrivacyRefusal, match="another key"):
            accept_other(agreed, file_of(rotated), lambda other: True)

    def test_the_fingerprint_is_of_the_role_too(self, relay: Agreement):
        assert replace(relay.own, role="analyzer").fingerprint != relay.own.fingerprint
        assert len(check_public_key(relay.own.signing_key)) == 32


class TestCommand:
    def test_it_says_what_to_do_next(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        folder = tmp_path / "relay"
        assert setup_command(folder) == 2
        assert "give the party's role and url" in capsys.readouterr().err
        assert not folder.exists()
        own = ("--role", "relay", "--url", URLS["relay"])
        assert setup_command(folder, *own, "--name", "[red]Foundation") == 0
        shown = capsys.readouterr().out
        assert "[red]Foundation, https://relay.example" in shown
        assert f"shoal parties setup --data {folder} --other FILE" in shown
        before, _ = read_party(public_file(folder, "relay"))
        assert setup_command(folder) == 0  # again
        assert before.fingerprint in capsys.readouterr().out
        assert setup_command(folder, "--role", "analyzer") == 2
        with pytest.raises(InputError, match=r"does not know its analyzer: .* --other FILE"):
            known_agreement(folder, "relay")

    def test_somebody_must_compare_the_fingerprints(
        self,
        relay: Agreement,
        analyzer: Agreement,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ):
        words = ("--other", str(file_of(analyzer)))
        assert setup_command(relay.folder, *words, "--json") == 2
        assert "give --fingerprint" in capsys.readouterr().err
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        for answer, code in ((False, 3), (True, 0)):
            monkeypatch.setattr("click.confirm", lambda question, err, answer=answer: answer)
            assert setup_command(relay.folder, *words) == code
            assert analyzer.own.fingerprint in capsys.readouterr().err

    def test_services_need_the_setup(
        self, relay: Agreement, analyzer: Agreement, capsys: pytest.CaptureFixture[str]
    ):
        (relay.folder / "shoal.toml").write_text("")
        accept(relay, analyzer)
        for words, reason in (
            (["relay", "--data", str(analyzer.folder)], "not the folder of a set-up relay"),
            (["analyzer", "--data", str(relay.folder)], "not the folder of a set-up analyzer"),
            (["relay", "--data", str(relay.folder.parent / "new")], "shoal parties setup"),
        ):
            assert run(words) == 2
            assert reason in capsys.readouterr().err
        (relay.folder / EXCHANGE_FILE).unlink()
        assert run(["relay", "--data", str(relay.folder)]) == 2
        assert "is not the one of the public file" in capsys.readouterr().err

    def test_lost_data_are_not_taken_for_new_ones(self, tmp_path: Path):
        (tmp_path / "crowd-key").write_text("")
        with pytest.raises(InputError, match="has a crowd-key and no"):
            set_up(tmp_path, role="relay", url=URLS["relay"])

    def test_what_was_set_up_starts_once_without_data(self, relay: Agreement, analyzer: Agreement):
        """Afterwards a missing database is a loss."""
        (analyzer.folder / "shoal.toml").write_text("")

        async def nothing(relay: FakeRelay) -> None:
            pass

        beside_analyzer(nothing, analyzer.folder)
        (analyzer.folder / "shoal.db").unlink()
        with pytest.raises(InputError, match="so reports that were counted would be counted again"):
            beside_analyzer(nothing, analyzer.folder)


class TestOneOperator:
    def both(self, folder: Path, *words: str) -> dict[str, Path]:
        assert setup_command(folder, "--both", *words) == 0
        return {role: public_file(folder / role, role) for role in URLS}

    def test_the_mark_is_in_the_files_the_plan_and_the_certificate(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        files = self.both(tmp_path, *(f"--url={url}" for url in URLS.values()))
        assert capsys.readouterr().out.startswith("One operator: local epsilon only.\n")
        assert all(json.loads(path.read_bytes())["mark"] == ONE_OPERATOR for path in files.values())
        wish = ["--flags", "2", "--crowd", "200", "--epsilon", "1", "--delta", "1e-5"]
        given = [word for role, path in files.items() for word in (f"--{role}", str(path))]
        target = tmp_path / "plan.json"
        assert run(["plan", *wish, *given, "-o", str(target), "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["warnings"][0].startswith(ONE_OPERATOR)
        assert printed["device_key"] == read_party(files["analyzer"])[0].signing_key
        agreed = Plan.read(target)
        assert agreed.parties == Parties(URLS["relay"], URLS["analyzer"], one_operator=True)
        table = {one["who"]: one for one in printed["certificate"]["observers"]}
        operator = table["operator of relay and analyzer"]
        assert operator["holds"] == "local"
        assert agreed.local_epsilon <= operator["epsilon"] < agreed.local_epsilon + 0.001
        assert {"relay", "analyzer", "relay and analyzer together"}.isdisjoint(table)

    def test_one_operator_s_party_is_not_mixed_with_another_s(
        self, tmp_path: Path, relay: Agreement
    ):
        self.both(tmp_path / "demo")
        demo = known_agreement(tmp_path / "demo" / "analyzer", "analyzer")
        with pytest.raises(PrivacyRefusal, match="the analyzer was set up with --both"):
            accept(relay, demo)
        with pytest.raises(PrivacyRefusal, match="the analyzer was set up with --both"):
            accept(demo, relay)
        again = set_up(demo.folder)
        assert again.own.mark == ONE_OPERATOR  # it stays with the folder
        with pytest.raises(InputError, match="use a new folder"):
            set_up(relay.folder, mark=ONE_OPERATOR)

    def test_services_refuse_a_plan_without_the_mark_and_of_others(self, tmp_path: Path):
        assert isinstance(WHOLE.parties, Parties)
        urls = (f"--url={WHOLE.parties.relay}", f"--url={WHOLE.parties.analyzer}")
        self.both(tmp_path, *urls)
        parties = replace(WHOLE.parties, one_operator=True)
        marked = replace(WHOLE, parties=parties)
        elsewhere = replace(WHOLE, parties=replace(parties, relay="https://other.example"))

        async def at_the_analyzer(one: FakeRelay) -> list[problems.Problem | None]:
            add = one.analyzer.administration.add_plan
            return [await add(plan) for plan in (WHOLE, elsewhere, marked)]

        refused = [problems.UNMARKED_PLAN, problems.OTHER_PARTIES, None]
        assert beside_analyzer(at_the_analyzer, tmp_path / "analyzer") == refused
        found = {one.check: one for one in examine(tmp_path / "analyzer", environment={})}
        assert found["parties"].verdict == "warn"
        assert found["parties"].sentence.startswith(ONE_OPERATOR.capitalize())

        async def at_the_relay(world: RelayWorld) -> None:
            for plan in (WHOLE, elsewhere):
                with pytest.raises(PrivacyRefusal, match="plan with their public files"):
                    await world.relay.publish(plan)
            await world.relay.publish(marked)

        in_relay(at_the_relay, tmp_path / "relay", FakeAnalyzer(marked))
