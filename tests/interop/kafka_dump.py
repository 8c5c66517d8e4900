"""What Kafka's own tool prints of the records of coordinators."""

from __future__ import annotations

from pathlib import Path

from tests.interop.coordinator_records import Printed, dumped
from tests.interop.kafka_tools import dump_log_segments
from tidelog.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

DECODERS = {OFFSETS_TOPIC: "--offsets-decoder", TRANSACTIONS_TOPIC: "--transaction-log-decoder"}
"""The options of Kafka's dump tool."""


def kafka_dump(directory: Path, topic: str) -> list[Printed]:
    """The records of the topic's first partition, as Kafka's tool decodes them."""
    path = f"{topic}-0/00000000000000000000.log"
    found = dump_log_segments(directory, [path], "--deep-iteration", DECODERS[topic])
    assert found.complaints == []
    return [record for line in found.files[path] if (record := dumped(line)) is not None]
