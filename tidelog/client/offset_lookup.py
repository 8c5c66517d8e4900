"""Offset lookups at the leaders: the ends of partitions, and the offset for a timestamp."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from tidelog.client.cluster import NEW_TOPIC_MS, Cluster, PartitionView
from tidelog.client.options import ensure_no_seconds, whole_number
from tidelog.client.read_committed import LEVELS
from tidelog.client.retries import BACKOFF_MS
from tidelog.errors import (
    InvalidRequest,
    RequestTimedOut,
    Retry,
    TidelogError,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from tidelog.protocol import methods
from tidelog.protocol.rpc import Method
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import data_pb2
from tidelog.types import (
    EARLIEST,
    INT64_MAX,
    LATEST,
    LATEST_TIERED,
    NO_LEADER_EPOCH,
    Endpoint,
    EpochEnd,
    Isolation,
    LeaderEpoch,
    Millis,
    Offset,
    TopicPartition,
)

CALL_TIMEOUT_MS: Final = 5_000
"""Timeout of one request to a leader."""

WARN_AFTER_MS: Final = 2_500
"""How long the leader of a partition may not answer before a warning. Commands for operators give up earlier."""

_log: Final = logging.getLogger("tidelog.client")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def since_1970_ms(moment: datetime) -> int:
    """Return a time as whole milliseconds. moment: with a time zone."""
    # Not `datetime.timestamp`: it is a binary fraction, which is one millisecond too small for some times.
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def time_at(milliseconds: int) -> datetime:
    """The inverse of `since_1970_ms`, in UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


OnError: TypeAlias = Callable[[TopicPartition, TidelogError], None]
"""Gets the error of a partition."""


def raise_for_partition(_key: TopicPartition, error: TidelogError) -> None:
    """An OnError that raises."""
    raise error


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time (Kafka's class of this name)."""

    offset: Offset
    timestamp: Millis
    """That of the record, in milliseconds since 1970."""
    leader_epoch: LeaderEpoch
    """NO_LEADER_EPOCH if it is unknown."""


def time_in_log(time: object) -> Millis:
    """Return a time to look up in milliseconds. time: an aware datetime, or milliseconds since 1970. Raises TypeError,
    InvalidRequest, InvalidTimestamp."""
    if isinstance(time, datetime):
        return Millis(timestamp_of(time))
    return ensure_no_seconds(Millis(whole_number("a time in milliseconds", time, least=0, most=INT64_MAX)))


def timestamp_of(place: object) -> int:
    """Return the timestamp to look up for a place in a log. Raises InvalidRequest."""
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise InvalidRequest(f"datetime {place!r} has no time zone: set tzinfo, for example UTC")
        return max(0, since_1970_ms(place))
    if place in ("earliest", "latest"):
        return EARLIEST if place == "earliest" else LATEST
    raise InvalidRequest(f"invalid place in a log: {place!r}; use 'earliest', 'latest', a datetime or (seek) an offset")


async def list_positions(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    timeout_ms: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    known: Callable[[TopicPartition], LeaderEpoch] = lambda _: NO_LEADER_EPOCH,
    on_error: OnError = raise_for_partition,
) -> dict[TopicPartition, EpochEnd]:
    """Return the offset for each partition's timestamp, EARLIEST or LATEST, with the leader epoch of the record at the
    offset, or at LATEST of the record before it; NO_LEADER_EPOCH if it is unknown.

    EARLIEST_LOCAL and LATEST_TIERED work likewise; -1 if nothing is in the remote tier.
    isolation: defines the end of the log. A timestamp after the last record yields the end.
    known: returns the newest leader epoch in which records of a partition were read or committed; a leader of an older
    epoch is not queried.
    on_error: as of `ask_leaders`; a partition with an error has no offset.
    Looks up leaders again and retries for `timeout_ms`, then raises the last error.
    """
    found: dict[TopicPartition, EpochEnd] = {}
    asked = dict(wanted)
    later: set[TopicPartition] = set()
    """Partitions without a record at or after the timestamp."""

    def take(key: TopicPartition, answer: data_pb2.ListedOffset) -> bool:
        if answer.offset != -1 or wanted[key] == LATEST_TIERED:
            found[key] = EpochEnd(LeaderEpoch(answer.leader_epoch), Offset(answer.offset))
        elif key in later:
            on_error(key, RequestTimedOut("a node does not know the end of its log yet: try again"))
            return True
        else:
            later.add(key)
            asked[key] = LATEST
        return key in found

    await _list_offsets(cluster, asked, take, known, isolation, timeout_ms=timeout_ms, on_error=on_error)
    return {key: found[key] for key in wanted if key in found}


async def find_times(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, Millis],
    *,
    timeout_ms: int,
    isolation: Isolation,
    known: Callable[[TopicPartition], LeaderEpoch],
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return the first record at or after each partition's time, None where there is none. Arguments and errors are
    those of `list_positions`."""
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

    def take(key: TopicPartition, answer: data_pb2.ListedOffset) -> bool:
        record = Offset(answer.offset), Millis(answer.timestamp_ms), LeaderEpoch(answer.leader_epoch)
        found[key] = OffsetAndTimestamp(*record) if answer.offset != -1 else None
        return True

    await _list_offsets(cluster, wanted, take, known, isolation, timeout_ms=timeout_ms)
    return {key: found[key] for key in wanted}


async def _list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    take: Callable[[TopicPartition, data_pb2.ListedOffset], bool],
    known: Callable[[TopicPartition], LeaderEpoch],
    isolation: Isolation,
    *,
    timeout_ms: int,
    on_error: OnError = raise_for_partition,
) -> None:
    """Ask the leaders for the offsets of timestamps. timestamps: read again for each request. The others are those of
    `ask_leaders` and `list_positions`."""

    def question(key: TopicPartition, partition: PartitionView) -> dict[str, object]:
        return {"current_leader_epoch": partition.leader_epoch, "timestamp_ms": timestamps[key]}

    await ask_leaders(
        cluster,
        timestamps,
        methods.DATA_LIST_OFFSETS,
        question,
        take,
        known,
        timeout_ms=timeout_ms,
        on_error=on_error,
        isolation_level=LEVELS[isolation],
    )


class _MissingAnswers:
    """Why partitions have no answer yet. Warns once: a call may be repeated for half a minute."""

    def __init__(self, at: Millis) -> None:
        self.reasons: dict[TopicPartition, TidelogError] = {}
        """The last error of each partition that says more than that the time was over."""
        self._warn_at: Millis | None = Millis(at + WARN_AFTER_MS)

    def note(self, failures: Mapping[TopicPartition, TidelogError], at: Millis) -> None:
        """A round of requests has ended with these failures."""
        for key, error in failures.items():
            # The last attempt may have a millisecond: that its time was over says nothing about the leader.
            if not isinstance(error, RequestTimedOut) or key not in self.reasons:
                self.reasons[key] = error
        if self._warn_at is not None and failures and at >= self._warn_at:
            self._warn_at, key = None, min(failures)
            _log.warning("no answer from the leader of %s, the client keeps trying: %s", key, self.reasons[key].message)


async def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    method: Method[Any, Any],
    question: Callable[[TopicPartition, PartitionView], Mapping[str, object]],
    take: Callable[[TopicPartition, Any], bool],
    known: Callable[[TopicPartition], LeaderEpoch] = lambda _: NO_LEADER_EPOCH,
    *,
    timeout_ms: int,
    on_error: OnError = raise_for_partition,
    **fields: object,
) -> None:
    """Ask the leaders of partitions, each about all that it leads, until `take` has returned True for each partition.

    question: the fields of the request for a partition besides its topic id and index. fields: the other fields of the
    request. take: gets what an answer has for a partition; returns False to ask again. known: as of `list_positions`.
    on_error: gets the last error of each partition that has no answer, before one that says only that the time was
    over; by default it is raised.
    Looks up leaders again and retries for `timeout_ms`. UnknownTopicOrPartition is the error if nodes have reported a
    topic or partition as unknown for `NEW_TOPIC_MS`."""
    clock, retries = cluster.clock, cluster.retries(timeout_ms)
    left = list(partitions)
    unknown_since: Millis | None = None
    missing = _MissingAnswers(clock.monotonic_ms())
    while left:
        answers, failures = await _round(cluster, left, method, question, known, retries.left_ms, fields)
        left = [key for key in left if key not in answers or not take(key, answers[key])]
        at = clock.monotonic_ms()
        if not any(isinstance(error, UnknownTopicOrPartition) for error in failures.values()):
            unknown_since = None
        elif unknown_since is None:
            unknown_since = at
        missing.note(failures, at)
        waited = unknown_since is not None and at + BACKOFF_MS >= unknown_since + NEW_TOPIC_MS
        for key in [key for key, error in failures.items() if _is_final(cluster, key, error, waited=waited)]:
            left.remove(key)
            on_error(key, failures.pop(key))
        # The metadata of the node that answered last are older than the records read: another node may know the leader.
        if any(isinstance(error, UnknownLeaderEpoch) for error in failures.values()):
            cluster.distrust_last()
        if failures:
            try:
                await retries.pause(next(iter(failures.values())))
            except TidelogError:  # too late for another attempt
                left = [key for key in left if key not in failures]
                for key in failures:
                    on_error(key, missing.reasons[key])
            for topic in sorted({key.topic for key in left}):
                if not await _refresh(cluster, topic, retries.left_ms):
                    unknown_since = None


def _is_final(cluster: Cluster, key: TopicPartition, error: TidelogError, *, waited: bool) -> bool:
    """Whether the leader is not asked again about a partition. waited: for `NEW_TOPIC_MS`, while it was unknown."""
    if isinstance(error, UnknownTopicOrPartition):
        # `_round` has already waited for a topic that is not in the view.
        return waited or key.topic not in cluster.view.topics
    return error.retry is Retry.NEVER


def ensure_current(key: TopicPartition, partition: PartitionView, known: LeaderEpoch) -> None:
    """Raise UnknownLeaderEpoch if a leader is older than an epoch in which records were read or committed: it may be
    deposed, and its log may lack them (KIP-320)."""
    if partition.leader_epoch < known:
        raise UnknownLeaderEpoch(
            f"{key} has records of leader epoch {known}, but the metadata name node {partition.leader} as its leader "
            f"in the older epoch {partition.leader_epoch}: the nodes asked lag behind; try again"
        )


async def _refresh(cluster: Cluster, topic: str, timeout_ms: int) -> bool:
    """Look up the leaders again. Returns whether a node answered; errors surface in the next round."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await cluster.refresh(topic)
    except (TidelogError, TimeoutError):
        return False
    return True


async def _round(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    method: Method[Any, Any],
    question: Callable[[TopicPartition, PartitionView], Mapping[str, object]],
    known: Callable[[TopicPartition], LeaderEpoch],
    timeout_ms: int,
    fields: Mapping[str, object],
) -> tuple[dict[TopicPartition, Any], dict[TopicPartition, TidelogError]]:
    """Query each leader once, all at the same time. Returns the answers by partition, and the errors of the others:
    UnknownTopicOrPartition for a topic that is not in the view means that nodes have reported it as unknown for
    `NEW_TOPIC_MS`."""
    answers: dict[TopicPartition, Any] = {}
    failures: dict[TopicPartition, TidelogError] = {}
    by_leader: dict[Endpoint, dict[TopicPartition, Mapping[str, object]]] = {}
    for key in partitions:
        try:
            await cluster.wait_topic(key.topic, timeout_ms=timeout_ms)
            endpoint, partition = cluster.view.leader(key)
            ensure_current(key, partition, known(key))
        except TidelogError as error:
            failures[key] = error
            continue
        place = {"topic_id": cluster.view.topic(key.topic).topic_id.bytes, "partition": key.partition}
        by_leader.setdefault(endpoint, {})[key] = {**place, **question(key, partition)}

    async def ask(endpoint: Endpoint, asked: dict[TopicPartition, Mapping[str, object]]) -> Any:
        request = method.request(partitions=asked.values(), **fields)
        try:
            return await cluster.transport.call(
                endpoint, method, request, timeout_ms=max(1, min(timeout_ms, CALL_TIMEOUT_MS))
            )
        except TidelogError as error:
            return error

    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(ask(endpoint, asked)) for endpoint, asked in by_leader.items()]
    for asked, call in zip(by_leader.values(), calls, strict=True):
        answer = call.result()
        if isinstance(answer, TidelogError):
            failures |= dict.fromkeys(asked, answer)
            continue
        for key, result in zip(asked, answer.partitions, strict=True):
            if refusal := error_of(result):
                cluster.note_leader(key, refusal.leader)
                failures[key] = refusal
            else:
                answers[key] = result
    return answers, failures
