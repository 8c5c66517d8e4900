"""Errors that callers see.

Each class carries four facts: Kafka's error number (`code`) and name (`kafka_name`), the gRPC status sent with it
(`status`, by name: this module does not import grpc), when a retry can help (`retry`), and whether the records of the
request are in the log (`written`: True, False, or None for unknown). `tidelog/protocol/status.py` converts errors to
and from the wire. Numbers up to 1000 are Kafka's (`org.apache.kafka.common.protocol.Errors`), larger ones Tidelog's.

A message names the thing, the cause and the next step.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, ClassVar, Final

from tidelog.types import EpochEnd, NodeAddress, Offset, RecordError, TopicPartition

KAFKA_CODE_MAX: Final = 1000
"""Larger error numbers are not Kafka's."""


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
    """The partition leader, or the active controller, as known to the node that answered; None if unknown."""
    record_errors: tuple[RecordError, ...]
    """The records that caused the error and why. The whole batch was rejected."""

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
        cls, *, code: int, kafka_name: str | None = None, status: str, retry: Retry, written: bool | None
    ) -> None:
        """kafka_name: needed only if it is not the name of the class in upper case."""
        if kafka_name is None and code <= KAFKA_CODE_MAX:
            kafka_name = re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).upper()
        cls.code, cls.kafka_name = code, kafka_name
        cls.status, cls.retry, cls.written = status, retry, written
        if code in _BY_CODE:
            raise TypeError(
                f"error code {code} already belongs to {_BY_CODE[code].__name__}: give {cls.__name__} another code"
            )
        _BY_CODE[code] = cls

    @property
    def message(self) -> str:
        """The text of the error: the thing, the cause, the next step."""
        return str(self.args[0]) if self.args else type(self).__name__


_BY_CODE: dict[int, type[TidelogError]] = {}


def by_code(code: int) -> type[TidelogError]:
    """Return the class for an error number, or `UnknownServerError` if this version does not know the number."""
    return _BY_CODE.get(code, UnknownServerError)


def all_errors() -> list[type[TidelogError]]:
    """Return all error classes, sorted by number."""
    return [_BY_CODE[code] for code in sorted(_BY_CODE)]


# --- the general ones -------------------------------------------------------------------------------------------


class UnknownServerError(TidelogError, code=-1, status="INTERNAL", retry=Retry.LATER, written=None):
    """The node hit an internal error while it handled the request; see the log of the node."""


class RequestTimedOut(TidelogError, code=7, status="DEADLINE_EXCEEDED", retry=Retry.LATER, written=None):
    """No answer arrived before the timeout. The request may or may not have been applied."""


class InvalidRequest(TidelogError, code=42, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """The request is inconsistent or lacks a field."""


class InvalidConfig(TidelogError, code=40, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """A configuration has an unknown key or a value out of range."""


class UnsupportedVersion(TidelogError, code=35, status="UNIMPLEMENTED", retry=Retry.NEVER, written=False):
    """This version of Tidelog does not support the request."""


class TopicAuthorizationFailed(TidelogError, code=29, status="PERMISSION_DENIED", retry=Retry.NEVER, written=False):
    """The caller may not do this with the topic."""


class ClusterAuthorizationFailed(TidelogError, code=31, status="PERMISSION_DENIED", retry=Retry.NEVER, written=False):
    """The caller may not do this with the cluster."""


# --- authentication ---------------------------------------------------------------------------------------------


class SecurityDisabled(TidelogError, code=54, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The node has no authorizer, so that access control lists would have no effect."""


class UnsupportedSaslMechanism(TidelogError, code=33, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """The listener does not offer this SASL mechanism; the message names those that it offers (KIP-43)."""


class IllegalSaslState(TidelogError, code=34, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The listener requires SASL and the caller did not authenticate, or the reverse."""


class SaslAuthenticationFailed(TidelogError, code=58, status="UNAUTHENTICATED", retry=Retry.NEVER, written=False):
    """The user does not exist, its password is wrong, or the node could not prove that it knows the user (KIP-152)."""


class ResourceNotFound(TidelogError, code=91, status="NOT_FOUND", retry=Retry.NEVER, written=False):
    """What is to be changed does not exist, for example the credential of a user (KIP-554)."""


class DuplicateResource(TidelogError, code=92, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """One request names the same thing twice (KIP-554)."""


class UnacceptableCredential(TidelogError, code=93, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """A user name, a password or a number of iterations cannot be used (KIP-554)."""


class SaslSessionEnded(TidelogError, code=1044, status="UNAUTHENTICATED", retry=Retry.LATER, written=False):
    """The session of a caller is unknown, has expired, or its credential was changed or removed. A client authenticates
    again by itself (KIP-368)."""


class TooManyHandshakes(TidelogError, code=1045, status="RESOURCE_EXHAUSTED", retry=Retry.LATER, written=False):
    """Too many SASL handshakes or sessions of one address, or of all, are open at the node."""


class ThrottlingQuotaExceeded(TidelogError, code=89, status="RESOURCE_EXHAUSTED", retry=Retry.LATER, written=False):
    """A quota or a limit of the caller is exceeded, and the request cannot wait until it is not."""

    def __init__(self, message: str | None = None, *, throttle_time_ms: int = 0, **about: Any) -> None:
        """throttle_time_ms: the time after which another attempt can help; 0: unknown. about: as for TidelogError."""
        super().__init__(message, **about)
        self.throttle_time_ms = throttle_time_ms


# --- bytes ------------------------------------------------------------------------------------------------------


class CorruptRecord(
    TidelogError, code=2, kafka_name="CORRUPT_MESSAGE", status="DATA_LOSS", retry=Retry.NEVER, written=False
):
    """Record bytes have a wrong checksum, size or structure."""


class RecordTooLarge(
    TidelogError, code=10, kafka_name="MESSAGE_TOO_LARGE", status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False
):
    """A batch exceeds the topic's `max.message.bytes`, or a record exceeds the producer's limit."""


class RecordListTooLarge(TidelogError, code=18, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """A batch exceeds the topic's `segment.bytes`."""


class InvalidTimestamp(TidelogError, code=32, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """A record's timestamp is outside the bounds of its topic."""


class UnsupportedForMessageFormat(
    TidelogError, code=43, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False
):
    """The message format of the topic, or of the data, does not support what was sent."""


class UnsupportedCompressionType(TidelogError, code=76, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """A codec is unknown, not installed, or not supported by the message format."""


class InvalidRecord(TidelogError, code=87, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """A record is well-formed but violates a rule of its topic (for example, no key on a compacted topic)."""


class OffsetsNotMonotonic(TidelogError, code=1001, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """Offsets to be appended by a follower do not increase, or start below its log end offset."""


# --- offsets and epochs -----------------------------------------------------------------------------------------


class OffsetOutOfRange(TidelogError, code=1, status="OUT_OF_RANGE", retry=Retry.NEVER, written=False):
    """The offset is below the log start offset or above the last readable offset; the message states both bounds."""

    log_start: Offset | None = None
    """Log start offset of the node that raised the error, if it was reported."""


class OffsetNotAvailable(TidelogError, code=78, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """A newly elected leader does not know the high watermark yet (KIP-207)."""


class FetchSessionIdNotFound(TidelogError, code=70, status="NOT_FOUND", retry=Retry.NEVER, written=False):
    """A Kafka client continues a session of fetches that the node does not keep (KIP-227)."""


class InvalidFetchSessionEpoch(TidelogError, code=71, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """A Kafka client continues a session of fetches with another request than the next one (KIP-227)."""


class FetchSessionTopicIdError(TidelogError, code=106, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """A Kafka client names topics by id in a session of fetches that has names, or the reverse (KIP-516)."""


class FencedLeaderEpoch(TidelogError, code=74, status="FAILED_PRECONDITION", retry=Retry.ELSEWHERE, written=False):
    """The request's leader epoch is older than the node's: a newer leader has been elected (KIP-320)."""


class UnknownLeaderEpoch(TidelogError, code=75, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The request's leader epoch is newer than the node's: the node's metadata lags behind (KIP-320)."""


# --- topics, partitions, leaders --------------------------------------------------------------------------------


class UnknownTopicOrPartition(TidelogError, code=3, status="NOT_FOUND", retry=Retry.ELSEWHERE, written=False):
    """The topic or partition does not exist on this node according to the node's metadata."""


class UnknownTopicId(TidelogError, code=100, status="NOT_FOUND", retry=Retry.ELSEWHERE, written=False):
    """No topic has this id: the topic was deleted, or the node's metadata lags behind (KIP-516)."""


class InconsistentTopicId(TidelogError, code=103, status="FAILED_PRECONDITION", retry=Retry.ELSEWHERE, written=False):
    """The topic was deleted and created again: the request names the id of another incarnation (KIP-516)."""


class LeaderNotAvailable(TidelogError, code=5, status="UNAVAILABLE", retry=Retry.ELSEWHERE, written=False):
    """The partition has no leader; the message names the replicas that are eligible."""


class NotLeaderOrFollower(TidelogError, code=6, status="FAILED_PRECONDITION", retry=Retry.ELSEWHERE, written=False):
    """This node does not lead the partition; the request was rejected before anything was appended."""


class LeadershipLost(
    TidelogError, code=1006, kafka_name="NOT_LEADER_OR_FOLLOWER", status="ABORTED", retry=Retry.ELSEWHERE, written=None
):
    """The records were appended, or deleted, but the node lost leadership before all in-sync replicas had done so too.
    The next leader may or may not have them. Kafka uses number 6 for this case and for NotLeaderOrFollower; Tidelog
    separates the two."""


class TopicExists(
    TidelogError, code=36, kafka_name="TOPIC_ALREADY_EXISTS", status="ALREADY_EXISTS", retry=Retry.NEVER, written=False
):
    """A topic with this name already exists."""


class InvalidTopic(
    TidelogError,
    code=17,
    kafka_name="INVALID_TOPIC_EXCEPTION",
    status="INVALID_ARGUMENT",
    retry=Retry.NEVER,
    written=False,
):
    """The topic name is not allowed."""


class InvalidPartitions(TidelogError, code=37, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """The number of partitions is not allowed."""


class InvalidReplicationFactor(TidelogError, code=38, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """The replication factor is below 1, or larger than the number of usable nodes (TooFewNodes)."""


class TooFewNodes(InvalidReplicationFactor, code=1054, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """Fewer nodes are registered than the topic needs for its replicas, or none of them runs. Others may be starting.
    Kafka has one error for this and for a replication factor that is never possible."""


class PolicyViolation(TidelogError, code=44, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The cluster or a node has as many partitions as `max.partitions` or `max.broker.partitions` allow; records of a
    topic cannot be deleted because of its `cleanup.policy` or a topic snapshot; or there are too many topic
    snapshots."""


# --- acknowledgement --------------------------------------------------------------------------------------------


class NotEnoughReplicas(TidelogError, code=19, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """Fewer replicas are in sync than `min.insync.replicas` requires; the request was rejected before the append."""


class NotEnoughReplicasAfterAppend(TidelogError, code=20, status="ABORTED", retry=Retry.LATER, written=None):
    """The leader appended the records, then the ISR shrank below `min.insync.replicas`. They may still be committed."""


class InvalidRequiredAcks(TidelogError, code=21, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """`acks` is not -1 (all), 0 or 1."""


class CommitUnknown(TidelogError, code=1003, status="UNKNOWN", retry=Retry.NEVER, written=None):
    """It is unknown whether the records were committed: the connection broke or the leader changed before the answer.
    A producer without idempotence does not resend them by default, because a resend could write them twice."""

    topic_partition: TopicPartition | None = None
    """Partition of the records."""
    records: int = 0
    """Number of records in the batch: either all of them were committed or none."""


class BufferExhausted(TidelogError, code=1004, status="RESOURCE_EXHAUSTED", retry=Retry.LATER, written=False):
    """The producer's memory was full for `max_block_ms`."""


class OutOfOrderSequenceNumber(TidelogError, code=45, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """A sequence number of an idempotent producer leaves a gap: an earlier batch is missing."""


class UnknownProducerId(TidelogError, code=59, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The leader has no state for an idempotent producer whose batch is not its first: the state has expired."""


class InvalidProducerEpoch(TidelogError, code=47, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """A newer instance of the producer has a higher epoch."""


class InvalidTxnState(TidelogError, code=48, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """A producer wrote outside of its open transaction, or asked for something that its state does not allow."""


class TransactionCoordinatorFenced(
    TidelogError, code=52, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False
):
    """The coordinator that wrote a transaction marker has been replaced by a newer one."""


# --- groups -----------------------------------------------------------------------------------------------------


class OffsetMetadataTooLarge(TidelogError, code=12, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """The metadata of a committed offset is longer than `offset.metadata.max.bytes`."""


class CoordinatorLoadInProgress(TidelogError, code=14, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The coordinator is reading its partition; it answers when all of it is loaded."""


class CoordinatorNotAvailable(TidelogError, code=15, status="UNAVAILABLE", retry=Retry.ELSEWHERE, written=False):
    """There is no coordinator at the moment: its internal topic or the leader of its partition is missing."""


class NotCoordinator(TidelogError, code=16, status="FAILED_PRECONDITION", retry=Retry.ELSEWHERE, written=False):
    """This node is not the coordinator of the group or transactional id; look the coordinator up again."""


class IllegalGeneration(TidelogError, code=22, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The generation of a member of the classic protocol is not the group's."""


class InconsistentGroupProtocol(TidelogError, code=23, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The protocol type, or all protocols, of a member are others than those of the members of its group."""


class InvalidGroupId(TidelogError, code=24, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """The group id is empty or too long."""


class UnknownMemberId(TidelogError, code=25, status="NOT_FOUND", retry=Retry.NEVER, written=False):
    """The group has no such member: it left, or its session timed out. A client joins again by itself."""


class InvalidSessionTimeout(TidelogError, code=26, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """The session timeout of a member is not within the limits of the coordinator."""


class RebalanceInProgress(TidelogError, code=27, status="ABORTED", retry=Retry.LATER, written=False):
    """The group reassigns its partitions; the member has to join again first."""


class GroupAuthorizationFailed(TidelogError, code=30, status="PERMISSION_DENIED", retry=Retry.NEVER, written=False):
    """The caller may not do this with the group."""


class NonEmptyGroup(TidelogError, code=68, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The group has members: stop them first."""


class GroupIdNotFound(TidelogError, code=69, status="NOT_FOUND", retry=Retry.NEVER, written=False):
    """There is no such group."""


class MemberIdRequired(TidelogError, code=79, status="FAILED_PRECONDITION", retry=Retry.LATER, written=False):
    """A new member has to join again with the id that the answer gives it (KIP-394)."""


class GroupMaxSizeReached(TidelogError, code=81, status="RESOURCE_EXHAUSTED", retry=Retry.NEVER, written=False):
    """The group has as many members as `group.consumer.max.size`, or `group.max.size`, allows."""


class FencedInstanceId(TidelogError, code=82, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """Another member with the same `group.instance.id` has taken this one's place (KIP-345)."""


class GroupSubscribedToTopic(TidelogError, code=86, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The offsets of a topic cannot be deleted while members of the group subscribe to it."""


class UnstableOffsetCommit(TidelogError, code=88, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """An open transaction may change the offset; it can be read once the transaction has ended (KIP-447)."""


class FencedMemberEpoch(TidelogError, code=110, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The member's epoch is not the group's for it: it has to give up its partitions and join again (KIP-848)."""


class UnreleasedInstanceId(TidelogError, code=111, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The `group.instance.id` belongs to a member that still runs (KIP-848)."""


class UnsupportedAssignor(TidelogError, code=112, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """The group coordinator has no assignor of this name; the message lists those that it has."""


class StaleMemberEpoch(TidelogError, code=113, status="FAILED_PRECONDITION", retry=Retry.LATER, written=False):
    """The member's epoch has moved on; send the request again with the epoch of the last heartbeat (KIP-848)."""


class InvalidRegularExpression(TidelogError, code=128, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """A pattern for topics is not a valid regular expression."""


class UnreadableCoordinatorRecord(TidelogError, code=1046, status="DATA_LOSS", retry=Retry.NEVER, written=False):
    """A record of an internal topic is malformed, or of a version that this version of Tidelog does not know."""


# --- transactions -----------------------------------------------------------------------------------------------


class InvalidProducerIdMapping(TidelogError, code=49, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The producer id is not the one of the transactional id: the id expired, or another producer uses it."""


class InvalidTransactionTimeout(TidelogError, code=50, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """The transaction timeout is below 1 ms or above `transaction.max.timeout.ms`."""


class ConcurrentTransactions(TidelogError, code=51, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The last transaction of the transactional id is still being completed."""


class TransactionalIdAuthorizationFailed(
    TidelogError, code=53, status="PERMISSION_DENIED", retry=Retry.NEVER, written=False
):
    """The caller may not do this with the transactional id."""


class OperationNotAttempted(TidelogError, code=55, status="ABORTED", retry=Retry.NEVER, written=False):
    """Another part of the request was refused, so this one was not tried: correct the other and repeat both."""


class ProducerFenced(TidelogError, code=90, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """A newer producer with the same transactional id has started: this one must end (KIP-98, KIP-588)."""


class TransactionalIdNotFound(TidelogError, code=105, status="NOT_FOUND", retry=Retry.NEVER, written=False):
    """There is no such transactional id, or it has expired (KIP-664)."""


class TransactionAbortable(TidelogError, code=120, status="ABORTED", retry=Retry.NEVER, written=False):
    """The transaction cannot be committed any more: abort it, and begin again (KIP-890)."""


class TransactionAborted(TidelogError, code=1047, status="ABORTED", retry=Retry.LATER, written=False):
    """Something of a transaction failed, so all of it was aborted: read_committed consumers see nothing of it. The
    failure is the cause of the error. Run the transaction again, from the input on."""


class TransactionOutcomeUnknown(TidelogError, code=1048, status="UNKNOWN", retry=Retry.NEVER, written=None):
    """It is unknown whether a transaction was committed: its coordinator did not answer within the transaction timeout,
    or a newer producer took over in between. All of it was committed, or none."""


# --- storage ----------------------------------------------------------------------------------------------------


class KafkaStorageError(TidelogError, code=56, status="UNAVAILABLE", retry=Retry.ELSEWHERE, written=None):
    """A disk read, write or fsync failed: the log directory is offline. Other log directories stay online."""


class DiskFull(TidelogError, code=1002, status="RESOURCE_EXHAUSTED", retry=Retry.LATER, written=False):
    """The log directory is full: the whole append was rejected. Reads continue."""


class CorruptLog(TidelogError, code=1005, status="DATA_LOSS", retry=Retry.NEVER, written=None):
    """Bytes that were reported as durable are corrupt or missing. This is data corruption, not a torn write."""


class OffsetMovedToTieredStorage(TidelogError, code=109, status="OUT_OF_RANGE", retry=Retry.ELSEWHERE, written=False):
    """The offset is below the local log start of the replica, and not below the log start: its records are in the
    remote tier. A follower continues at the local log start of its leader."""


class InconsistentClusterId(TidelogError, code=104, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The log directory or the other node belongs to another cluster."""


# --- controller -------------------------------------------------------------------------------------------------


class NotController(TidelogError, code=41, status="FAILED_PRECONDITION", retry=Retry.ELSEWHERE, written=False):
    """This node is not the active controller; the message names the active controller if it is known."""


class StaleNodeEpoch(
    TidelogError,
    code=77,
    kafka_name="STALE_BROKER_EPOCH",
    status="FAILED_PRECONDITION",
    retry=Retry.NEVER,
    written=False,
):
    """The node epoch is stale: a newer incarnation of the node has registered, or the registration has ended."""


class DuplicateNodeRegistration(
    TidelogError,
    code=101,
    kafka_name="DUPLICATE_BROKER_REGISTRATION",
    status="ALREADY_EXISTS",
    retry=Retry.LATER,
    written=False,
):
    """Another live process is registered with this node id."""


class NodeIdNotRegistered(
    TidelogError, code=102, kafka_name="BROKER_ID_NOT_REGISTERED", status="NOT_FOUND", retry=Retry.NEVER, written=False
):
    """No node with this id is registered."""


class InvalidVoterKey(TidelogError, code=125, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The request addresses another replica of the metadata log: another node, or another directory of this node."""


class VoterNotFound(TidelogError, code=127, status="NOT_FOUND", retry=Retry.NEVER, written=False):
    """The metadata quorum has no such voter."""


class VoterChangePending(TidelogError, code=1012, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The previous change of the voters of the metadata quorum is not committed yet; voters change one at a time."""


class InvalidUpdateVersion(TidelogError, code=95, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The partition epoch in an AlterPartition request is stale (KIP-497); or a feature cannot get the level that a
    client of Kafka requests (KIP-584)."""


class IneligibleReplica(TidelogError, code=107, status="FAILED_PRECONDITION", retry=Retry.LATER, written=False):
    """A replica proposed for the ISR is fenced, draining or of a stale incarnation (KIP-841, KIP-903)."""


class PreferredLeaderNotAvailable(TidelogError, code=80, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The preferred leader of the partition is not in sync, fenced or shutting down."""


class EligibleLeadersNotAvailable(TidelogError, code=83, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """No available replica of the partition can become leader, not even by an unclean election."""


class ElectionNotNeeded(TidelogError, code=84, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The partition already has the requested leader."""


class LogDirNotFound(TidelogError, code=57, status="NOT_FOUND", retry=Retry.NEVER, written=False):
    """The node has no log directory of this path."""


class ReplicaNotAvailable(TidelogError, code=9, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The node has no log of this replica yet, or is still moving it."""


class InvalidReplicaAssignment(TidelogError, code=39, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """The requested replicas are unknown, repeated or empty; or the reassignment can no longer be cancelled."""


class NoReassignmentInProgress(TidelogError, code=85, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The partition has no reassignment to cancel."""


class FeatureUpdateFailed(TidelogError, code=96, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The requested feature level is not possible."""


class NodeShuttingDown(TidelogError, code=1007, status="UNAVAILABLE", retry=Retry.ELSEWHERE, written=False):
    """The node is shutting down and accepts no new requests."""


class NodeNotAvailable(
    TidelogError, code=8, kafka_name="BROKER_NOT_AVAILABLE", status="UNAVAILABLE", retry=Retry.ELSEWHERE, written=False
):
    """The node is starting and cannot answer requests yet."""


class ConnectionFailed(TidelogError, code=1008, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """A connection to a node failed; the message names the address and the phase."""


class ConnectionLost(ConnectionFailed, code=1009, status="UNAVAILABLE", retry=Retry.LATER, written=None):
    """The connection broke before the answer arrived. The node may or may not have applied the request."""


class TlsHandshakeFailed(ConnectionFailed, code=1033, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """TLS could not be established with a node; nothing was sent. The subclasses name the cause."""


class CertificateExpired(TlsHandshakeFailed, code=1034, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The certificate of the node has expired, or is not valid yet."""


class CertificateNameMismatch(TlsHandshakeFailed, code=1035, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The certificate of the node is not for the name or address that was used."""


class UnknownCertificateAuthority(
    TlsHandshakeFailed, code=1036, status="UNAVAILABLE", retry=Retry.LATER, written=False
):
    """The certificate of the node is signed by an authority that this side does not trust."""


class TlsRequired(TlsHandshakeFailed, code=1037, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The node speaks TLS at this port, and this side sent plain text."""


class TlsNotSpoken(TlsHandshakeFailed, code=1038, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The node speaks plain text at this port, and this side began TLS."""


class ClientCertificateRequired(TlsHandshakeFailed, code=1039, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The node requires a certificate of the client, and this side has none."""


class ClientCertificateRejected(TlsHandshakeFailed, code=1040, status="UNAVAILABLE", retry=Retry.LATER, written=False):
    """The node does not accept the certificate of the client."""


# --- client -----------------------------------------------------------------------------------------------------


class DeliveryTimedOut(TidelogError, code=1010, status="DEADLINE_EXCEEDED", retry=Retry.LATER, written=False):
    """The producer retried for `delivery_timeout_ms` without success. The records were not written. The last error is
    the cause."""


class UsedAfterFork(TidelogError, code=1053, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """A client of the parent is used in a forked child, or gRPC cannot work in the child because it was running in the
    parent when the child was forked. Nothing was sent."""


class CommitFailed(TidelogError, code=1049, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The offsets were not committed: the committer does not have the partition any more, because it was fenced or gave
    it up. Another member reads the records again."""


class NoCommittedOffset(TidelogError, code=1050, status="NOT_FOUND", retry=Retry.NEVER, written=False):
    """The group has no committed offset for a partition, and `auto_offset_reset` is "none"."""


class LogTruncated(TidelogError, code=1011, status="DATA_LOSS", retry=Retry.NEVER, written=None):
    """The log was truncated below the consumer's position: records that the consumer has read are no longer in the log.
    Causes: an unclean election, or a page-cache topic whose replicas lost unflushed data (KIP-320)."""

    diverging: EpochEnd | None = None
    """The last leader epoch that the log and the consumer may share, and the highest offset at which they may agree. To
    continue, seek to that offset with that epoch."""
