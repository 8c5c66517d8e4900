"""Deletion of the first records of partitions (KIP-107): the offsets to delete up to, and the requests to the leaders.

A deletion names offsets, also where the caller named a time or the end: a request that is sent again deletes no records
that were written since.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from tidelog.client.cluster import Cluster
from tidelog.client.offset_lookup import OnError, ask_leaders, list_positions, timestamp_of
from tidelog.client.options import topic_partition, unchecked_partition, whole_number
from tidelog.errors import TidelogError
from tidelog.protocol import methods
from tidelog.protocol.v1 import data_pb2
from tidelog.types import INT64_MAX, LATEST, Offset, TopicPartition

WAIT_MS: Final = 4_000
"""How long a leader waits for its followers before it answers; less than the timeout of a call."""


async def ends_of_deletion(
    cluster: Cluster, before: Mapping[Any, object], *, timeout_ms: int, on_error: OnError
) -> dict[TopicPartition, Offset]:
    """Return the offset below which the records of each partition are to be deleted. before: an offset, an aware
    datetime, or "latest" (in Kafka -1) for each partition. on_error: gets the errors of partitions that there cannot be
    and of offsets that are wrong or cannot be looked up. Raises TypeError."""
    offsets: dict[TopicPartition, Offset] = {}
    places: dict[TopicPartition, int] = {}
    for named, limit in before.items():
        try:
            key = topic_partition(named)
            if isinstance(limit, datetime) or limit == "latest":
                places[key] = timestamp_of(limit)
            elif limit == LATEST:
                places[key] = LATEST
            else:
                offsets[key] = Offset(whole_number(f"the offset for {key}", limit, least=0, most=INT64_MAX))
        except TidelogError as error:
            on_error(unchecked_partition(named), error)
    if places:
        found = await list_positions(cluster, places, timeout_ms=timeout_ms, on_error=on_error)
        offsets |= {key: position.end_offset for key, position in found.items()}
    return offsets


async def delete_below(
    cluster: Cluster, offsets: Mapping[TopicPartition, Offset], *, timeout_ms: int, on_error: OnError
) -> dict[TopicPartition, Offset]:
    """Delete the records of partitions below these offsets. Returns the lowest log start of the replicas of each. Asks
    again while a leader is being elected or a replica lags, for `timeout_ms`. on_error: gets the errors of the others.
    """
    low: dict[TopicPartition, Offset] = {}

    def take(key: TopicPartition, answer: data_pb2.DeletedRecords) -> bool:
        low[key] = Offset(answer.low_watermark)
        return True

    await ask_leaders(
        cluster,
        offsets,
        methods.DATA_DELETE_RECORDS,
        lambda key, _view: {"offset": offsets[key]},
        take,
        timeout_ms=timeout_ms,
        on_error=on_error,
        max_wait_ms=min(WAIT_MS, timeout_ms),
    )
    return low
