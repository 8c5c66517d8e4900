"""What can go wrong, as callers see it: every error says what to do next.

Each class carries four facts: Kafka's error number (`code`; its name is `kafka_name`), the gRPC status that travels
with it (`status`, by name: no grpc here), when a retry makes sense (`retry`), and whether the request's records are in
the log (`written`: True, False, or None where nobody can tell). `node/runtime/status.py` and
`tidelog/protocol/status.py` translate; one test walks both ways. Numbers below 1000 are Kafka's
(`org.apache.kafka.common.protocol.Errors`), those above are Tidelog's own.

A message names the thing, the cause and the next step.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from tidelog.types import EpochEnd, NodeAddress, Offset, RecordError, TopicPartition


class Retry(Enum):
    """When sending the same request again can help."""

    NEVER = "the request itself must change"
    LATER = "the same node, after a pause"
    ELSEWHERE = "after looking up the leader again"


class TidelogError(Exception):
    """Base of all errors that callers see."""

    code: ClassVar[int]
    kafka_name: ClassVar[str | None]
    status: ClassVar[str]
    retry: ClassVar[Retry]
    written: ClassVar[bool | None]

    leader: NodeAddress | None
    """Who leads, or who is the active controller, as far as the answering node knows; None where it does not."""
    record_errors: tuple[RecordError, ...]
    """Where single records were refused: which, and why. Their batch was refused whole."""

    def __init__(
        self,
        message: str | None = None,
        *,
        leader: NodeAddress | None = None,
        record_errors: tuple[RecordError, ...] = (),
    ) -> None:
        super().__init__(*(() if message is None else (message,)))
        self.leader = leader
        self.record_errors = record_errors

    def __init_subclass__(
        cls, *, code: int, kafka_name: str | None, status: str, retry: Retry, written: bool | None
    ) -> None:
        cls.code, cls.kafka_name = code, kafka_name
        cls.status, cls.retry, cls.written = status, retry, written
        if code in _BY_CODE:
            raise TypeError(
                f"error code {code} belongs to {_BY_CODE[code].__name__} already, {cls.__name__} needs another"
            )
        _BY_CODE[code] = cls

    @property
    def message(self) -> str:
        """The sentence for people: the thing, the cause, the next step."""
        return str(self.args[0]) if self.args else type(self).__name__


_BY_CODE: dict[int, type[TidelogError]] = {}


def by_code(code: int) -> type[TidelogError]:
    """The class for an error number; `UnknownServerError` for a number that this version does not know."""
    return _BY_CODE.get(code, UnknownServerError)


def all_errors() -> list[type[TidelogError]]:
    """Every error class, by number."""
    return [_BY_CODE[code] for code in sorted(_BY_CODE)]


# --- the general ones -------------------------------------------------------------------------------------------


class UnknownServerError(
    TidelogError, code=-1, kafka_name="UNKNOWN_SERVER_ERROR", status="INTERNAL", retry=Retry.LATER, written=None
):
    """The node met a defect of its own while it worked on the request; its log says more."""


class RequestTimedOut(
    TidelogError, code=7, kafka_name="REQUEST_TIMED_OUT", status="DEADLINE_EXCEEDED", retry=Retry.LATER, written=None
):
    """The time ran out before an answer came: what was sent may or may not be in the log."""


class InvalidRequest(
    TidelogError, code=42, kafka_name="INVALID_REQUEST", status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False
):
    """The request contradicts itself or lacks a field."""


class InvalidConfig(
    TidelogError, code=40, kafka_name="INVALID_CONFIG", status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False
):
    """A configuration names an unknown key or a value outside its range."""


class UnsupportedVersion(
    TidelogError, code=35, kafka_name="UNSUPPORTED_VERSION", status="UNIMPLEMENTED", retry=Retry.NEVER, written=False
):
    """This version of Tidelog does not do what was asked for."""


# --- bytes ------------------------------------------------------------------------------------------------------


class CorruptRecord(
    TidelogError, code=2, kafka_name="CORRUPT_MESSAGE", status="DATA_LOSS", retry=Retry.NEVER, written=False
):
    """Bytes that claim to be records fail their checksum, size or structure."""


class RecordTooLarge(
    TidelogError, code=10, kafka_name="MESSAGE_TOO_LARGE", status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False
):
    """A batch is larger than its topic's `max.message.bytes`, or a record than the producer's limit."""


class RecordListTooLarge(
    TidelogError,
    code=18,
    kafka_name="RECORD_LIST_TOO_LARGE",
    status="INVALID_ARGUMENT",
    retry=Retry.NEVER,
    written=False,
):
    """A batch is larger than its topic's `segment.bytes`."""


class InvalidTimestamp(
    TidelogError, code=32, kafka_name="INVALID_TIMESTAMP", status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False
):
    """A record's timestamp lies outside the bounds of its topic."""


class UnsupportedForMessageFormat(
    TidelogError,
    code=43,
    kafka_name="UNSUPPORTED_FOR_MESSAGE_FORMAT",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """The message format of the topic, or of the bytes, cannot hold what was sent."""


class UnsupportedCompressionType(
    TidelogError,
    code=76,
    kafka_name="UNSUPPORTED_COMPRESSION_TYPE",
    status="INVALID_ARGUMENT",
    retry=Retry.NEVER,
    written=False,
):
    """A codec that is unknown, not installed, or not part of the message format."""


class InvalidRecord(
    TidelogError, code=87, kafka_name="INVALID_RECORD", status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False
):
    """A record is well-formed but breaks a rule of its topic (for example no key on a compacted topic)."""


class OffsetsNotMonotonic(
    TidelogError, code=1001, kafka_name=None, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False
):
    """Offsets that a follower was to append do not grow, or start below its log end."""


# --- offsets and epochs -----------------------------------------------------------------------------------------


class OffsetOutOfRange(
    TidelogError, code=1, kafka_name="OFFSET_OUT_OF_RANGE", status="OUT_OF_RANGE", retry=Retry.NEVER, written=False
):
    """The offset lies below the log start or above what may be read; the message gives both ends."""

    log_start: Offset | None = None
    """Where the log of the node begins that said so, where it did."""


class OffsetNotAvailable(
    TidelogError, code=78, kafka_name="OFFSET_NOT_AVAILABLE", status="UNAVAILABLE", retry=Retry.LATER, written=False
):
    """A new leader does not yet know how far the log is committed (KIP-207)."""


class FencedLeaderEpoch(
    TidelogError,
    code=74,
    kafka_name="FENCED_LEADER_EPOCH",
    status="FAILED_PRECONDITION",
    retry=Retry.ELSEWHERE,
    written=False,
):
    """The request's leader epoch is older than the node's: another leader has been elected since (KIP-320)."""


class UnknownLeaderEpoch(
    TidelogError, code=75, kafka_name="UNKNOWN_LEADER_EPOCH", status="UNAVAILABLE", retry=Retry.LATER, written=False
):
    """The request's leader epoch is newer than the node's: the node has not heard of that election yet (KIP-320)."""


# --- topics, partitions, leaders --------------------------------------------------------------------------------


class UnknownTopicOrPartition(
    TidelogError,
    code=3,
    kafka_name="UNKNOWN_TOPIC_OR_PARTITION",
    status="NOT_FOUND",
    retry=Retry.ELSEWHERE,
    written=False,
):
    """No such topic or partition on this node, as far as its metadata goes."""


class UnknownTopicId(
    TidelogError, code=100, kafka_name="UNKNOWN_TOPIC_ID", status="NOT_FOUND", retry=Retry.ELSEWHERE, written=False
):
    """No topic has this id: it was deleted, or the node has not heard of it yet (KIP-516)."""


class InconsistentTopicId(
    TidelogError,
    code=103,
    kafka_name="INCONSISTENT_TOPIC_ID",
    status="FAILED_PRECONDITION",
    retry=Retry.ELSEWHERE,
    written=False,
):
    """The topic was deleted and created again: the request speaks of another life of it (KIP-516)."""


class LeaderNotAvailable(
    TidelogError, code=5, kafka_name="LEADER_NOT_AVAILABLE", status="UNAVAILABLE", retry=Retry.ELSEWHERE, written=False
):
    """The partition has no leader now; the message says which replicas could lead."""


class NotLeaderOrFollower(
    TidelogError,
    code=6,
    kafka_name="NOT_LEADER_OR_FOLLOWER",
    status="FAILED_PRECONDITION",
    retry=Retry.ELSEWHERE,
    written=False,
):
    """This node does not lead the partition, and the request was refused before anything was appended."""


class LeadershipLost(
    TidelogError, code=1006, kafka_name="NOT_LEADER_OR_FOLLOWER", status="ABORTED", retry=Retry.ELSEWHERE, written=None
):
    """The records were appended, then the node stopped leading before they were committed: the next leader may or may
    not have them. Kafka sends the same number (6) for both; Tidelog keeps them apart."""


class TopicExists(
    TidelogError, code=36, kafka_name="TOPIC_ALREADY_EXISTS", status="ALREADY_EXISTS", retry=Retry.NEVER, written=False
):
    """A topic of this name exists."""


class InvalidTopic(
    TidelogError,
    code=17,
    kafka_name="INVALID_TOPIC_EXCEPTION",
    status="INVALID_ARGUMENT",
    retry=Retry.NEVER,
    written=False,
):
    """The topic's name is not allowed."""


class InvalidPartitions(
    TidelogError, code=37, kafka_name="INVALID_PARTITIONS", status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False
):
    """A number of partitions that is not allowed."""


class InvalidReplicationFactor(
    TidelogError,
    code=38,
    kafka_name="INVALID_REPLICATION_FACTOR",
    status="INVALID_ARGUMENT",
    retry=Retry.NEVER,
    written=False,
):
    """More replicas asked for than there are usable nodes, or fewer than one."""


# --- acknowledgement --------------------------------------------------------------------------------------------


class NotEnoughReplicas(
    TidelogError, code=19, kafka_name="NOT_ENOUGH_REPLICAS", status="UNAVAILABLE", retry=Retry.LATER, written=False
):
    """Fewer replicas are in sync than `min.insync.replicas` asks for: refused before the append."""


class NotEnoughReplicasAfterAppend(
    TidelogError,
    code=20,
    kafka_name="NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    status="ABORTED",
    retry=Retry.LATER,
    written=None,
):
    """Appended by the leader, then the in-sync set shrank below `min.insync.replicas`: not committed, may still be."""


class InvalidRequiredAcks(
    TidelogError,
    code=21,
    kafka_name="INVALID_REQUIRED_ACKS",
    status="INVALID_ARGUMENT",
    retry=Retry.NEVER,
    written=False,
):
    """`acks` is none of -1 (all), 0 and 1."""


class CommitUnknown(TidelogError, code=1003, kafka_name=None, status="UNKNOWN", retry=Retry.NEVER, written=None):
    """The client cannot tell whether the records were committed: the connection broke or the leader changed before the
    answer. A plain producer does not send them again by itself, since that could write them twice."""

    topic_partition: TopicPartition | None = None
    """Where the records were to go."""
    records: int = 0
    """How many records shared the batch: all of them were committed, or none."""


class BufferExhausted(
    TidelogError, code=1004, kafka_name=None, status="RESOURCE_EXHAUSTED", retry=Retry.LATER, written=False
):
    """The producer's memory is full and stayed full for `max_block_ms`."""


class OutOfOrderSequenceNumber(
    TidelogError,
    code=45,
    kafka_name="OUT_OF_ORDER_SEQUENCE_NUMBER",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """An idempotent producer's sequence leaves a gap: an earlier batch is missing."""


class UnknownProducerId(
    TidelogError,
    code=59,
    kafka_name="UNKNOWN_PRODUCER_ID",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """The leader knows nothing of an idempotent producer whose batch is not its first: its records have expired."""


class InvalidProducerEpoch(
    TidelogError,
    code=47,
    kafka_name="INVALID_PRODUCER_EPOCH",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """A newer instance of the producer has been given a higher epoch."""


class InvalidTxnState(
    TidelogError,
    code=48,
    kafka_name="INVALID_TXN_STATE",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """A producer writes outside of the transaction that it has open."""


class TransactionCoordinatorFenced(
    TidelogError,
    code=52,
    kafka_name="TRANSACTION_COORDINATOR_FENCED",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """The end of a transaction was to be written by a coordinator that another has replaced."""


# --- storage ----------------------------------------------------------------------------------------------------


class KafkaStorageError(
    TidelogError, code=56, kafka_name="KAFKA_STORAGE_ERROR", status="UNAVAILABLE", retry=Retry.ELSEWHERE, written=None
):
    """The disk refused to read, write or sync: the log directory is offline, the other directories serve on."""


class DiskFull(TidelogError, code=1002, kafka_name=None, status="RESOURCE_EXHAUSTED", retry=Retry.LATER, written=False):
    """The log directory is full: the append was refused whole, reads go on."""


class CorruptLog(TidelogError, code=1005, kafka_name=None, status="DATA_LOSS", retry=Retry.NEVER, written=None):
    """Bytes that had been reported as held are damaged or gone: rot, not a torn write."""


class InconsistentClusterId(
    TidelogError,
    code=104,
    kafka_name="INCONSISTENT_CLUSTER_ID",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """The log directory, or the other node, belongs to another cluster."""


# --- controller -------------------------------------------------------------------------------------------------


class NotController(
    TidelogError,
    code=41,
    kafka_name="NOT_CONTROLLER",
    status="FAILED_PRECONDITION",
    retry=Retry.ELSEWHERE,
    written=False,
):
    """This node is not the active controller; the message says which one is, where it is known."""


class StaleNodeEpoch(
    TidelogError,
    code=77,
    kafka_name="STALE_BROKER_EPOCH",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """The node has been registered again since: this process is an earlier incarnation, or its registration is over."""


class DuplicateNodeRegistration(
    TidelogError,
    code=101,
    kafka_name="DUPLICATE_BROKER_REGISTRATION",
    status="ALREADY_EXISTS",
    retry=Retry.LATER,
    written=False,
):
    """Another process with this node id is registered and alive."""


class NodeIdNotRegistered(
    TidelogError, code=102, kafka_name="BROKER_ID_NOT_REGISTERED", status="NOT_FOUND", retry=Retry.NEVER, written=False
):
    """No node of this id is registered."""


class InvalidVoterKey(
    TidelogError,
    code=125,
    kafka_name="INVALID_VOTER_KEY",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """The request is meant for another replica of the metadata log: another node, or another directory of this one."""


class VoterNotFound(
    TidelogError, code=126, kafka_name="VOTER_NOT_FOUND", status="NOT_FOUND", retry=Retry.NEVER, written=False
):
    """The metadata quorum has no such voter."""


class VoterChangePending(
    TidelogError, code=1012, kafka_name=None, status="UNAVAILABLE", retry=Retry.LATER, written=False
):
    """The voters of the metadata quorum change one at a time, and the last change is not committed yet."""


class InvalidUpdateVersion(
    TidelogError,
    code=95,
    kafka_name="INVALID_UPDATE_VERSION",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """The partition epoch in an AlterPartition is not the current one: it was decided on old news (KIP-497)."""


class IneligibleReplica(
    TidelogError,
    code=107,
    kafka_name="INELIGIBLE_REPLICA",
    status="FAILED_PRECONDITION",
    retry=Retry.LATER,
    written=False,
):
    """A replica to be admitted is fenced, draining or of a stale incarnation (KIP-841, KIP-903)."""


class PreferredLeaderNotAvailable(
    TidelogError,
    code=80,
    kafka_name="PREFERRED_LEADER_NOT_AVAILABLE",
    status="UNAVAILABLE",
    retry=Retry.LATER,
    written=False,
):
    """The preferred leader of a partition is not in sync, fenced or being stopped."""


class EligibleLeadersNotAvailable(
    TidelogError,
    code=83,
    kafka_name="ELIGIBLE_LEADERS_NOT_AVAILABLE",
    status="UNAVAILABLE",
    retry=Retry.LATER,
    written=False,
):
    """No replica of the partition is there that could lead it, not even an unclean one."""


class ElectionNotNeeded(
    TidelogError,
    code=84,
    kafka_name="ELECTION_NOT_NEEDED",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """The partition is led as asked already."""


class InvalidReplicaAssignment(
    TidelogError,
    code=39,
    kafka_name="INVALID_REPLICA_ASSIGNMENT",
    status="INVALID_ARGUMENT",
    retry=Retry.NEVER,
    written=False,
):
    """Replicas asked for a partition are not there, named twice or none; or a move cannot be taken back now."""


class NoReassignmentInProgress(
    TidelogError,
    code=85,
    kafka_name="NO_REASSIGNMENT_IN_PROGRESS",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """There is no reassignment of the partition to end."""


class FeatureUpdateFailed(
    TidelogError,
    code=96,
    kafka_name="FEATURE_UPDATE_FAILED",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """The feature level cannot be the one asked for."""


class NodeShuttingDown(
    TidelogError, code=1007, kafka_name=None, status="UNAVAILABLE", retry=Retry.ELSEWHERE, written=False
):
    """The node is stopping and takes no new requests."""


class NodeNotAvailable(
    TidelogError, code=8, kafka_name="BROKER_NOT_AVAILABLE", status="UNAVAILABLE", retry=Retry.ELSEWHERE, written=False
):
    """The node is starting and cannot answer yet."""


class ConnectionFailed(
    TidelogError, code=1008, kafka_name=None, status="UNAVAILABLE", retry=Retry.LATER, written=False
):
    """A node could not be reached: the message says which address, in which phase."""


class ConnectionLost(
    ConnectionFailed, code=1009, kafka_name=None, status="UNAVAILABLE", retry=Retry.LATER, written=None
):
    """The connection broke while an answer was awaited: the node may or may not have done what it was asked."""


# --- client -----------------------------------------------------------------------------------------------------


class DeliveryTimedOut(
    TidelogError, code=1010, kafka_name=None, status="DEADLINE_EXCEEDED", retry=Retry.LATER, written=False
):
    """The producer tried for `delivery_timeout_ms` without success; the last refusal is the cause. Certainly not
    written."""


class LogTruncated(TidelogError, code=1011, kafka_name=None, status="DATA_LOSS", retry=Retry.NEVER, written=None):
    """What a consumer has read is not in the log any more: after an unclean election, or on a page-cache topic whose
    replicas lost their memory, the log was cut below the consumer's position (KIP-320)."""

    diverging: EpochEnd | None = None
    """The last epoch that the log and the consumer may have in common, and up to where, at most, they agree: seek there
    with that epoch to go on."""
