"""Keys and values of one internal topic: the type in the first two bytes of a key, the version in those of a value.

    key    int16 type of the record, fields       plain encoding
    value  int16 version, fields                  flexible from a version on; no value deletes what the key stands for

Source: Kafka 4.1, CoordinatorRecordSerde.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.formats.fields import FieldReader, FieldWriter, MalformedField
from tidelog.errors import UnreadableCoordinatorRecord

_NUMBER: Final = Struct(">h")


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """One type of record.

    numbers: its types in keys; the first is written. name: Kafka's name of the record. key, read_key, write_key: the
    class of the key, and its fields. read_value, write_value: the fields of a value in a version. versions: those that
    are read. flexible_from: the first flexible version. written_version: the version in which a value is written.
    """

    numbers: tuple[int, ...]
    name: str
    key: type[Any]
    read_key: Callable[[FieldReader], Any]
    write_key: Callable[[FieldWriter, Any], None]
    read_value: Callable[[FieldReader, int], Any]
    write_value: Callable[[FieldWriter, Any, int], None]
    versions: range = range(1)
    flexible_from: int = 0
    written_version: Callable[[Any], int] = lambda _: 0


class RecordCodec:
    """The formats of one internal topic.

    topic: its name. formats: the types that are read and written. refused: types of Kafka that this coordinator does
    not have, with what they are for.
    """

    def __init__(self, topic: str, formats: Sequence[RecordFormat], refused: Mapping[int, str] | None = None) -> None:
        self._topic = topic
        self._by_number = {number: form for form in formats for number in form.numbers}
        self._by_key = {form.key: form for form in formats}
        self._refused = refused or {}

    def decode(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord[Any, Any]:
        """Return the record. Raises UnreadableCoordinatorRecord, naming topic, type and version."""
        form = self._format_of(key)
        assert key is not None
        try:
            reader = FieldReader(key, _NUMBER.size, len(key), flexible=False)
            decoded_key = form.read_key(reader)
            reader.finish()
        except ValueError as error:
            raise self._malformed(f"key of type {form.name}", error) from error
        return CoordinatorRecord(decoded_key, None if value is None else self._decode_value(form, value))

    def encode(self, record: CoordinatorRecord[Any, Any], version: int | None = None) -> tuple[bytes, bytes | None]:
        """Return key and value. version: of the value; without it, the version that Kafka 4.1 writes."""
        form = self._by_key[type(record.key)]
        key = FieldWriter(flexible=False)
        key.int16(form.numbers[0])
        form.write_key(key, record.key)
        if record.value is None:
            return bytes(key), None
        if version is None:
            version = form.written_version(record.value)
        value = FieldWriter(flexible=version >= form.flexible_from)
        value.int16(version)
        form.write_value(value, record.value, version)
        return bytes(key), bytes(value)

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
            error = MalformedField(f"{len(value)} bytes, where a version has 2")
            raise self._malformed(f"value of type {form.name}", error)
        version = _NUMBER.unpack_from(value)[0]
        if version not in form.versions:
            raise UnreadableCoordinatorRecord(
                f"a record of {self._topic} of type {form.name} has a value of version {version}, and this version of "
                f"Tidelog knows {form.versions[0]} to {form.versions[-1]}: upgrade this node to the version that wrote "
                "it"
            )
        try:
            reader = FieldReader(value, _NUMBER.size, len(value), flexible=version >= form.flexible_from)
            decoded = form.read_value(reader, version)
            reader.finish()
        except ValueError as error:
            raise self._malformed(f"value of type {form.name} in version {version}", error) from error
        return decoded

    def _malformed(self, part: str, error: ValueError) -> UnreadableCoordinatorRecord:
        return UnreadableCoordinatorRecord(
            f"the {part} of a record of {self._topic} is malformed: {error}. The record is damaged; restore the log "
            "from another replica"
        )
