"""DAP's messages against bytes that were put together by hand from the text of the draft."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shoal.errors import ReportError
from shoal.protocol.dap import Task
from shoal.protocol.dap import messages as dap
from shoal.protocol.dap.messages import (
    BatchMode,
    Extension,
    HpkeCiphertext,
    Message,
    ReportFault,
    ReportMetadata,
)
from tests.server.aggregation.world import HELPER, LEADER, PLAN, WEEK

ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))
TASK_ID, BATCH_ID, CHECKSUM = bytes(range(32)), bytes(32), b"\xff" * 32

CIPHERTEXT = HpkeCiphertext(194, b"enc", b"payload")
CIPHERTEXT_HEX = "c2 0003 656e63 00000007 7061796c6f6164"
EXTENSIONS = Extension(7, b"x").to_bytes() + Extension(9, b"").to_bytes()
METADATA = ReportMetadata(ID, 17419860, EXTENSIONS)
METADATA_HEX = "000102030405060708090a0b0c0d0e0f 000000000109ce54 0009 0007 0001 78 0009 0000"
VDAF = dap.MultihotCountVecConfig(40, 7, 40)
TASK = dap.TaskConfiguration(
    b"shoal",
    b"https://leader.example/",
    b"https://helper.example/",
    604800,
    1000,
    BatchMode.LEADER_SELECTED,
    b"",
    5,
    VDAF.to_bytes(),
)
TASK_HEX = (
    "05 73686f616c 0017 68747470733a2f2f6c65616465722e6578616d706c652f"
    " 0017 68747470733a2f2f68656c7065722e6578616d706c652f 0000000000093a80 00000000000003e8"
    " 02 0000 00000005 0010 00000028 00000007 0000000000000028 0000"
)
SHARE = dap.ReportShare(METADATA, b"public", CIPHERTEXT)
SHARE_HEX = METADATA_HEX + " 00000006 7075626c6963 " + CIPHERTEXT_HEX
COLLECTION = dap.CollectionJobReq(dap.Query(BatchMode.LEADER_SELECTED))
COLLECTION_HEX = "02 0000 00000000 0000"

EXPECTED: list[tuple[Message, str]] = [
    (CIPHERTEXT, CIPHERTEXT_HEX),
    (METADATA, METADATA_HEX),
    (TASK, TASK_HEX),
    (
        dap.HpkeConfigList((dap.HpkeConfig(17, 0x20, 1, 1, b"\x04\x03"),)),
        "000b 11 0020 0001 0001 0002 0403",
    ),
    (
        dap.UploadRequest((dap.Report(METADATA, b"", CIPHERTEXT, CIPHERTEXT),)),
        f"{METADATA_HEX} 00000000 {CIPHERTEXT_HEX} {CIPHERTEXT_HEX}",
    ),
    (
        dap.UploadErrors(
            (
                dap.ReportUploadStatus(ID, ReportFault.REPORT_REPLAYED),
                dap.ReportUploadStatus(OTHER_ID, ReportFault.OUTDATED_CONFIG),
            )
        ),
        f"{ID.hex()} 02 {OTHER_ID.hex()} 0b",
    ),
    (dap.PlaintextInputShare(b"", b"share"), "0000 00000005 7368617265"),
    (
        dap.AggregationJobInitReq(
            3,
            b"",
            (Extension(dap.LEADER_SELECTED_BATCH_ID, BATCH_ID),),
            (dap.VerifyInit(SHARE, b"init"), dap.VerifyInit(SHARE, b"i")),
        ),
        f"03 00000000 0024 0001 0020 {BATCH_ID.hex()}"
        f" {SHARE_HEX} 00000004 696e6974 {SHARE_HEX} 00000001 69",
    ),
    (
        dap.AggregationJobResp(
            (
                dap.VerifyResp(ID, b"next"),
                dap.VerifyResp(OTHER_ID, report_error=ReportFault.VDAF_VERIFY_ERROR),
                dap.VerifyResp(ID),
            )
        ),
        f"{ID.hex()} 00 00000004 6e657874 {OTHER_ID.hex()} 02 06 {ID.hex()} 01",
    ),
    (COLLECTION, COLLECTION_HEX),
    (
        dap.CollectionJobResp(1000, dap.TimeInterval(16595440, 1), CIPHERTEXT, CIPHERTEXT),
        f"00000000000003e8 0000000000fd39f0 0000000000000001 {CIPHERTEXT_HEX} {CIPHERTEXT_HEX}",
    ),
    (
        dap.AggregateShareReq(
            COLLECTION, dap.BatchSelector(BatchMode.LEADER_SELECTED, BATCH_ID), 1000, CHECKSUM
        ),
        f"{COLLECTION_HEX} 02 0020 {BATCH_ID.hex()} 00000000000003e8 {CHECKSUM.hex()}",
    ),
    (dap.AggregateShare(CIPHERTEXT), CIPHERTEXT_HEX),
    (
        dap.AggregateShareAad(TASK_ID, TASK, COLLECTION),
        f"{TASK_ID.hex()} {TASK_HEX} {COLLECTION_HEX}",
    ),
]


@pytest.mark.parametrize(("message", "text"), EXPECTED, ids=lambda one: type(one).__name__)
def test_a_message_has_the_bytes_of_the_draft(message: Message, text: str):
    content = bytes.fromhex(text)
    assert message.to_bytes().hex() == content.hex()
    assert type(message).from_bytes(content) == message


def broken(content: bytes, chance: random.Random) -> Iterator[bytes]:
    """Yield ends that are missing, bytes that are changed, and bytes that follow."""
    yield from (content[:end] for end in range(len(content)))
    yield content + b"\0"
    for _ in range(200):
        changed = bytearray(content)
        changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        yield bytes(changed)
        yield chance.randbytes(chance.randrange(2 * len(content)))


@pytest.mark.parametrize(("message", "text"), EXPECTED, ids=lambda one: type(one).__name__)
def test_whatever_is_read_is_one_message_or_refused(message: Message, text: str):
    """What is accepted is exactly what writing it again gives: a message has one form."""
    for content in broken(bytes.fromhex(text), random.Random(1)):
        try:
            read = type(message).from_bytes(content)
        except ReportError:
            continue
        assert read.to_bytes() == content


def test_a_length_that_is_a_lie_costs_nothing():
    with pytest.raises(ReportError, match="too early"):
        dap.PlaintextInputShare.from_bytes(bytes.fromhex("0000 ffffffff 00"))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (dap.PlaintextInputShare, "0000 00000000"),  # no payload
        (dap.HpkeCiphertext, "01 0000 00000001 00"),  # no encapsulated key
        (dap.Query, "03 0000"),  # a batch mode that does not exist
        (dap.ReportUploadStatus, ID.hex() + "00"),  # a reserved error
        (dap.VerifyResp, ID.hex() + "03"),
    ],
)
def test_what_the_draft_forbids_is_refused(message: type[Message], text: str):
    with pytest.raises(ReportError):
        message.from_bytes(bytes.fromhex(text))


def test_extensions_are_in_strictly_increasing_order():
    first, second = Extension(1, b""), Extension(2, b"")
    assert dap.are_in_order(())
    assert dap.are_in_order((first, second))
    assert not dap.are_in_order((second, first))
    assert not dap.are_in_order((first, first))


def test_a_task_says_what_its_plan_says():
    agreed = replace(PLAN, honest_fraction="0.9")
    task = Task(agreed)
    base = f"/dap/{task.path}/"
    assert task.id.hex() == agreed.id
    assert task.configuration == dap.TaskConfiguration(
        b"shoal",
        f"{LEADER}{base}".encode(),
        f"{HELPER}{base}".encode(),
        WEEK,
        23,  # 20 / 0.9, rounded up
        BatchMode.LEADER_SELECTED,
        b"",
        5,
        dap.MultihotCountVecConfig(4, 3, 4).to_bytes(),  # 7 checks in 3 chunks
    )


def test_media_types():
    assert dap.UploadRequest.content_type() == "application/ppm-dap;message=upload-req"
