"""The messages of draft-ietf-ppm-dap-18, as bytes and back.

A message is a dataclass whose annotations say how each field is encoded in the presentation
language of TLS (RFC 8446, section 3): numbers are big endian, a vector is preceded by its length in
bytes. Reading is strict: what is not exactly one message is a `ReportError`, whatever it is.

The names of messages and fields are those of the draft.

>>> interval = TimeInterval(5, 1)
>>> interval.to_bytes().hex()
'00000000000000050000000000000001'
>>> TimeInterval.from_bytes(interval.to_bytes()) == interval
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_type_hints

from shoal.errors import ReportError

VERSION = b"dap-18"
MEDIA_TYPE = "application/ppm-dap"
ID_BYTES = 16
TASK_ID_BYTES = BATCH_ID_BYTES = CHECKSUM_BYTES = 32


class Role(IntEnum):
    COLLECTOR = 0
    CLIENT = 1
    LEADER = 2
    HELPER = 3


class ReportFault(IntEnum):
    """Why an aggregator does not count a report; the draft's `ReportError`."""

    BATCH_COLLECTED = 1
    REPORT_REPLAYED = 2
    REPORT_DROPPED = 3
    HPKE_UNKNOWN_CONFIG_ID = 4
    HPKE_DECRYPT_ERROR = 5
    VDAF_VERIFY_ERROR = 6
    TASK_EXPIRED = 7
    INVALID_MESSAGE = 8
    REPORT_TOO_EARLY = 9
    TASK_NOT_STARTED = 10
    OUTDATED_CONFIG = 11


class BatchMode(IntEnum):
    TIME_INTERVAL = 1
    LEADER_SELECTED = 2


class Reader:
    """Reads a message from its beginning, and never beyond its end."""

    def __init__(self, content: bytes | memoryview) -> None:
        self._content, self._at = memoryview(content), 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._content):
            raise ReportError("the DAP message ends too early.")
        taken = bytes(self._content[self._at : end])
        self._at = end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._content)

    def rest(self) -> bytes:
        return self.take(len(self._content) - self._at)


class Encoding(NamedTuple):
    """How the values of a field become bytes, and back."""

    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]


def whole_number(size: int) -> Encoding:
    """Encode a whole number in `size` bytes."""
    return Encoding(lambda value: value.to_bytes(size), lambda reader: reader.number(size))


def one_of(members: type[IntEnum]) -> Encoding:
    """Encode one of the members of an enumeration in one byte."""

    def read(reader: Reader) -> IntEnum:
        code = reader.number(1)
        try:
            return members(code)
        except ValueError:
            raise ReportError(f"{code} is no {members.__name__} of DAP.") from None

    return Encoding(lambda value: value.to_bytes(1), read)


def fixed(size: int) -> Encoding:
    """Encode exactly `size` bytes."""

    def write(value: bytes) -> bytes:
        if len(value) != size:
            raise ValueError(f"the field has {size} bytes, got {len(value)}.")
        return value

    return Encoding(write, lambda reader: reader.take(size))


def opaque(size: int, least: int = 0) -> Encoding:
    """Encode at least `least` bytes, preceded by their number in `size` bytes."""

    def write(value: bytes) -> bytes:
        if len(value) < least:
            raise ValueError("the field must not be empty.")
        return len(value).to_bytes(size) + value

    def read(reader: Reader) -> bytes:
        value = reader.take(reader.number(size))
        if len(value) < least:
            raise ReportError("a field of the DAP message is empty.")
        return value

    return Encoding(write, read)


def items(kind: type[Message], size: int = 0) -> Encoding:
    """Encode messages of a kind, preceded by their length in `size` bytes, or to the end if 0."""

    def write(value: tuple[Message, ...]) -> bytes:
        content = b"".join(one.to_bytes() for one in value)
        return content if size == 0 else len(content).to_bytes(size) + content

    def read(reader: Reader) -> tuple[Message, ...]:
        inner = Reader(reader.rest() if size == 0 else reader.take(reader.number(size)))
        found = []
        while not inner.is_at_end:
            found.append(kind.read(inner))
        return tuple(found)

    return Encoding(write, read)


class Message:
    """A message, or a part of one."""

    media_type: ClassVar[str] = ""
    """The parameter `message` of its media type, if it is sent by itself."""

    _fields: ClassVar[list[tuple[str, Encoding]]]

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True)
        cls._fields = [(name, _encoding(hints[name])) for name in cls.__annotations__]

    def to_bytes(self) -> bytes:
        return b"".join(encoding.write(getattr(self, name)) for name, encoding in self._fields)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        return cls(*[encoding.read(reader) for _, encoding in cls._fields])

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        reader = Reader(content)
        message = cls.read(reader)
        if not reader.is_at_end:
            raise ReportError("something follows the DAP message.")
        return message

    @classmethod
    def content_type(cls) -> str:
        return f"{MEDIA_TYPE};message={cls.media_type}"


def _encoding(hint: Any) -> Encoding:
    """Return how a field is encoded: its annotation says it, or it is itself a message."""
    itself = Encoding(lambda value: value.to_bytes(), lambda reader: hint.read(reader))
    noted: Encoding = getattr(hint, "__metadata__", (itself,))[0]
    return noted


Byte = Annotated[int, whole_number(1)]
Short = Annotated[int, whole_number(2)]
Word = Annotated[int, whole_number(4)]
Long = Annotated[int, whole_number(8)]
ReportId = Annotated[bytes, fixed(ID_BYTES)]
TaskId = Annotated[bytes, fixed(TASK_ID_BYTES)]
BatchId = Annotated[bytes, fixed(BATCH_ID_BYTES)]
Bytes = Annotated[bytes, opaque(4)]
SomeBytes = Annotated[bytes, opaque(4, least=1)]
ShortBytes = Annotated[bytes, opaque(2)]
SomeShortBytes = Annotated[bytes, opaque(2, least=1)]
Mode = Annotated[BatchMode, one_of(BatchMode)]
Fault = Annotated[ReportFault, one_of(ReportFault)]


@dataclass(frozen=True)
class TimeInterval(Message):
    """A half-open interval, in units of the task's time precision."""

    start: Long
    duration: Long


@dataclass(frozen=True)
class Extension(Message):
    """An extension of a task, an aggregation job or a collection job."""

    extension_type: Short
    extension_data: ShortBytes


Extensions = Annotated[tuple[Extension, ...], items(Extension, 2)]
UnreadExtensions = ShortBytes
"""Those of a report. None is known, and objects of them would take many times their memory."""


def are_in_order(extensions: Iterable[Extension]) -> bool:
    """Return whether the types of extensions increase strictly, as the draft requires."""
    types = [one.extension_type for one in extensions]
    return types == sorted(set(types))


@dataclass(frozen=True)
class HpkeCiphertext(Message):
    config_id: Byte
    enc: SomeShortBytes
    payload: SomeBytes


@dataclass(frozen=True)
class HpkeConfig(Message):
    id: Byte
    kem_id: Short
    kdf_id: Short
    aead_id: Short
    public_key: SomeShortBytes


@dataclass(frozen=True)
class HpkeConfigList(Message):
    media_type = "hpke-config-list"
    configs: Annotated[tuple[HpkeConfig, ...], items(HpkeConfig, 2)]


# Tasks


@dataclass(frozen=True)
class MultihotCountVecConfig(Message):
    """The configuration of Prio3MultihotCountVec."""

    length: Word
    chunk_length: Word
    max_weight: Long


@dataclass(frozen=True)
class TaskConfiguration(Message):
    task_info: Annotated[bytes, opaque(1, least=1)]
    leader_aggregator_endpoint: SomeShortBytes
    helper_aggregator_endpoint: SomeShortBytes
    time_precision: Long
    min_batch_size: Long
    batch_mode: Mode
    batch_config: ShortBytes
    vdaf_type: Word
    vdaf_configuration: ShortBytes
    extensions: Extensions = ()


# Uploads


@dataclass(frozen=True)
class ReportMetadata(Message):
    report_id: ReportId
    time: Long
    public_extensions: UnreadExtensions = b""


@dataclass(frozen=True)
class Report(Message):
    report_metadata: ReportMetadata
    public_share: Bytes
    leader_encrypted_input_share: HpkeCiphertext
    helper_encrypted_input_share: HpkeCiphertext


@dataclass(frozen=True)
class UploadRequest(Message):
    media_type = "upload-req"
    reports: Annotated[tuple[Report, ...], items(Report)]


@dataclass(frozen=True)
class ReportUploadStatus(Message):
    id: ReportId
    error: Fault


@dataclass(frozen=True)
class UploadErrors(Message):
    media_type = "upload-errors"
    status: Annotated[tuple[ReportUploadStatus, ...], items(ReportUploadStatus)]


@dataclass(frozen=True)
class PlaintextInputShare(Message):
    private_extensions: UnreadExtensions
    payload: SomeBytes


# Aggregation jobs

LEADER_SELECTED_BATCH_ID = 1
"""The type of the aggregation job extension that names the batch."""


@dataclass(frozen=True)
class ReportShare(Message):
    report_metadata: ReportMetadata
    public_share: Bytes
    encrypted_input_share: HpkeCiphertext


@dataclass(frozen=True)
class VerifyInit(Message):
    report_share: ReportShare
    payload: SomeBytes


@dataclass(frozen=True)
class AggregationJobInitReq(Message):
    media_type = "aggregation-job-init-req"
    verification_key_id: Byte
    agg_param: Bytes
    extensions: Extensions
    verify_inits: Annotated[tuple[VerifyInit, ...], items(VerifyInit)]


class VerifyRespType(IntEnum):
    CONTINUE = 0
    FINISH = 1
    REJECT = 2


@dataclass(frozen=True)
class VerifyResp(Message):
    """The helper's response for one report: a message to continue with, or why it is rejected."""

    report_id: bytes
    payload: bytes = b""
    report_error: ReportFault | None = None

    def to_bytes(self) -> bytes:
        if self.report_error is not None:
            kind, rest = VerifyRespType.REJECT, self.report_error.to_bytes(1)
        elif self.payload:
            kind, rest = VerifyRespType.CONTINUE, opaque(4).write(self.payload)
        else:
            kind, rest = VerifyRespType.FINISH, b""
        return fixed(ID_BYTES).write(self.report_id) + kind.to_bytes(1) + rest

    @classmethod
    def read(cls, reader: Reader) -> VerifyResp:
        report_id = reader.take(ID_BYTES)
        kind = one_of(VerifyRespType).read(reader)
        if kind == VerifyRespType.CONTINUE:
            return cls(report_id, opaque(4, least=1).read(reader))
        if kind == VerifyRespType.FINISH:
            return cls(report_id)
        return cls(report_id, report_error=ReportFault(one_of(ReportFault).read(reader)))


@dataclass(frozen=True)
class AggregationJobResp(Message):
    media_type = "aggregation-job-resp"
    verify_resps: Annotated[tuple[VerifyResp, ...], items(VerifyResp)]


# Collection


@dataclass(frozen=True)
class Query(Message):
    batch_mode: Mode
    config: ShortBytes = b""


@dataclass(frozen=True)
class CollectionJobReq(Message):
    media_type = "collection-job-req"
    query: Query
    agg_param: Bytes = b""
    extensions: Extensions = ()


@dataclass(frozen=True)
class CollectionJobResp(Message):
    media_type = "collection-job-resp"
    report_count: Long
    interval: TimeInterval
    leader_encrypted_agg_share: HpkeCiphertext
    helper_encrypted_agg_share: HpkeCiphertext


@dataclass(frozen=True)
class BatchSelector(Message):
    batch_mode: Mode
    config: ShortBytes


@dataclass(frozen=True)
class AggregateShareReq(Message):
    media_type = "aggregate-share-req"
    collection_job_req: CollectionJobReq
    batch_selector: BatchSelector
    report_count: Long
    checksum: Annotated[bytes, fixed(CHECKSUM_BYTES)]


@dataclass(frozen=True)
class AggregateShare(Message):
    media_type = "aggregate-share"
    encrypted_aggregate_share: HpkeCiphertext


@dataclass(frozen=True)
class AggregateShareAad(Message):
    task_id: TaskId
    task_configuration: TaskConfiguration
    collection_job_req: CollectionJobReq
