"""Record batches: encoding and decoding, byte-identical with Apache Kafka.

This module lists the public names of the package. Everything else in the package is internal.
"""

from __future__ import annotations

from tidelog.records.analysis import analyze
from tidelog.records.assignment import AppendRules, Inspected, assign_offsets
from tidelog.records.batches import iter_batches
from tidelog.records.legacy.message_builder import build_message_set
from tidelog.records.legacy.message_set import LegacyRecordBatch
from tidelog.records.v2.batch import RecordBatch, set_producer, stamp
from tidelog.records.v2.builder import RecordBatchBuilder, build_batch, empty_batch
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.control import (
    ControlVoter,
    EndTxnMarker,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    control_batch,
    decode_control,
)
from tidelog.records.v2.fast_paths import implementation
from tidelog.records.v2.header import HEADER_BYTES, LOG_OVERHEAD, BatchHeader, walk_headers
from tidelog.records.v2.record import Header, Record
from tidelog.records.v2.record_check import Rules

__all__ = [
    "HEADER_BYTES",
    "LOG_OVERHEAD",
    "AppendRules",
    "BatchHeader",
    "ControlVoter",
    "EndTxnMarker",
    "Header",
    "Inspected",
    "LeaderChange",
    "LegacyRecordBatch",
    "Record",
    "RecordBatch",
    "RecordBatchBuilder",
    "Rules",
    "SnapshotFooter",
    "SnapshotHeader",
    "analyze",
    "assign_offsets",
    "build_batch",
    "build_message_set",
    "control_batch",
    "crc32c",
    "decode_control",
    "empty_batch",
    "implementation",
    "iter_batches",
    "set_producer",
    "stamp",
    "walk_headers",
]
