"""Record batches: encoding and decoding, byte-identical with Apache Kafka.

This module lists the public names of the package. Everything else in the package is internal.
"""

from __future__ import annotations

from tidelog.records.analysis import Analysis, analyze
from tidelog.records.assignment import AppendRules, Assigned, Inspected, assign_offsets, inspect
from tidelog.records.batches import batch_at, iter_batches, view
from tidelog.records.legacy.message_builder import MessageSetBuilder, build_message_set
from tidelog.records.legacy.message_check import check_messages
from tidelog.records.legacy.message_set import LegacyRecordBatch, set_message_timestamp, stamp_message
from tidelog.records.v2.batch import RecordBatch, set_producer, stamp
from tidelog.records.v2.builder import RecordBatchBuilder, build_batch, empty_batch
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.compression import compress, decompress
from tidelog.records.v2.control import (
    ControlType,
    ControlVoter,
    EndTxnMarker,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    control_batch,
    decode_control,
    encode_control,
)
from tidelog.records.v2.fast_paths import RecordsBuffer, check_records, implementation
from tidelog.records.v2.header import HEADER_BYTES, LOG_OVERHEAD, BatchHeader, walk_headers
from tidelog.records.v2.record import Header, Record
from tidelog.records.v2.record_check import ProblemKind, RecordFacts, Rules
from tidelog.records.validation import ensure_producible

__all__ = [
    "HEADER_BYTES",
    "LOG_OVERHEAD",
    "Analysis",
    "AppendRules",
    "Assigned",
    "BatchHeader",
    "ControlType",
    "ControlVoter",
    "EndTxnMarker",
    "Header",
    "Inspected",
    "LeaderChange",
    "LegacyRecordBatch",
    "MessageSetBuilder",
    "ProblemKind",
    "Record",
    "RecordBatch",
    "RecordBatchBuilder",
    "RecordFacts",
    "RecordsBuffer",
    "Rules",
    "SnapshotFooter",
    "SnapshotHeader",
    "analyze",
    "assign_offsets",
    "batch_at",
    "build_batch",
    "build_message_set",
    "check_messages",
    "check_records",
    "compress",
    "control_batch",
    "crc32c",
    "decode_control",
    "decompress",
    "empty_batch",
    "encode_control",
    "ensure_producible",
    "implementation",
    "inspect",
    "iter_batches",
    "set_message_timestamp",
    "set_producer",
    "stamp",
    "stamp_message",
    "view",
    "walk_headers",
]
