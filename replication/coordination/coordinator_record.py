"""Records of the internal topics of coordinators: a typed key, and a typed value or none; and their bytes.

    key    int16 type of the record, the key's message in version 0
    value  int16 version, the value's message in this version; no value deletes what the key stands for

Not here: the keys and values of each topic (group_records.py, transaction_records.py).
Source: Kafka 4.1, CoordinatorRecordSerde.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, Generic, TypeVar

from tidelog.errors import InvalidRequest, UnreadableCoordinatorRecord
from tidelog.protocol.kafka.message_codec import MalformedMessage, MessageCodec, UnencodableMessage
from tidelog.values import dataclass

K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)

_NUMBER: Final = Struct(">h")


@dataclass(frozen=True, slots=True)
class CoordinatorRecord(Generic[K_co, V_co]):
    """One record. value: None for a tombstone, which deletes the key."""

    key: K_co
    value: V_co | None


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """One type of record."""

    key: MessageCodec[Any]
    value: MessageCodec[Any]
    written_version: Callable[[Any], int] = lambda _: 0
    """The version in which a value is written."""
    former_type: int | None = None
    """A further type in keys that is read."""

    @property
    def name(self) -> str:
        """Kafka's name of the record."""
        return self.key.message.__name__.removesuffix("Key")


class RecordCodec(Generic[K_co, V_co]):
    """The formats of one internal topic."""

    def __init__(self, topic: str, formats: Sequence[RecordFormat], refused: Mapping[int, str] | None = None) -> None:
        """topic: its name. formats: the types that are read and written. refused: types of Kafka that this coordinator
        does not have, with what they are for."""
        self._topic = topic
        self._by_number = {form.key.api_key: form for form in formats}
        self._by_number |= {form.former_type: form for form in formats if form.former_type is not None}
        self._by_key = {form.key.message: form for form in formats}
        self._refused = refused or {}

    def decode(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord[K_co, V_co]:
        """The record. Raises UnreadableCoordinatorRecord for malformed bytes and for types and versions that are not
        known; it names topic, type and version."""
        form = self._format_of(key)
        assert key is not None
        decoded_key = self._decode(form.key, key, 0)
        return CoordinatorRecord(decoded_key, None if value is None else self._decode_value(form, value))

    def encode(self, record: CoordinatorRecord[Any, Any], version: int | None = None) -> tuple[bytes, bytes | None]:
        """Key and value. version: of the value; without it, the version that Kafka 4.1 writes. Raises InvalidRequest
        for a name of more than 32,767 bytes."""
        form = self._by_key[type(record.key)]
        try:
            key = _NUMBER.pack(form.key.api_key) + form.key.encode(record.key, 0)
            if record.value is None:
                return key, None
            if version is None:
                version = form.written_version(record.value)
            return key, _NUMBER.pack(version) + form.value.encode(record.value, version)
        except UnencodableMessage as error:
            raise InvalidRequest(str(error)) from error

    def _format_of(self, key: bytes | None) -> RecordFormat:
        if key is None or len(key) < _NUMBER.size:
            length = "no key" if key is None else f"a key of {len(key)} bytes"
            raise UnreadableCoordinatorRecord(
                f"a record of {self._topic} has {length}, and a key begins with the type of the record in 2 bytes: "
                "the record was not written by a coordinator, or is damaged"
            )
        number = _NUMBER.unpack_from(key)[0]
        form = self._by_number.get(number)
        if form is not None:
            return form
        if number in self._refused:
            raise UnreadableCoordinatorRecord(
                f"a record of {self._topic} has type {number} ({self._refused[number]}), which Tidelog's coordinators "
                "do not have: delete these groups with Kafka's tools and compact the topic before Tidelog serves it"
            )
        raise UnreadableCoordinatorRecord(
            f"a record of {self._topic} has type {number}, and this version of Tidelog knows the types "
            f"{', '.join(map(str, sorted(self._by_number)))}: upgrade this node to the version that wrote it"
        )

    def _decode_value(self, form: RecordFormat, value: bytes) -> Any:
        if len(value) < _NUMBER.size:
            raise self._malformed(f"a {form.name} has a value of {len(value)} bytes, where a version has 2")
        version = _NUMBER.unpack_from(value)[0]
        versions = form.value.versions
        if version not in versions:
            raise UnreadableCoordinatorRecord(
                f"a record of {self._topic} of type {form.name} has a value of version {version}, and this version of "
                f"Tidelog knows {versions[0]} to {versions[-1]}: upgrade this node to the version that wrote it"
            )
        return self._decode(form.value, value, version)

    def _decode(self, codec: MessageCodec[Any], data: bytes, version: int) -> Any:
        try:
            message, end = codec.decode(data, version, _NUMBER.size)
        except MalformedMessage as error:
            raise self._malformed(error) from error
        if end != len(data):
            name = codec.message.__name__
            raise self._malformed(f"{name} in version {version}: {len(data) - end} bytes follow the last field")
        return message

    def _malformed(self, cause: object) -> UnreadableCoordinatorRecord:
        return UnreadableCoordinatorRecord(
            f"a record of {self._topic} is malformed: {cause}. The record is damaged; restore the log from another "
            "replica"
        )
