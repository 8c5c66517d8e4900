"""The object stores of a Python worker, kept between the tasks that it runs one after the other."""

from __future__ import annotations

import os
from typing import Final

from tidelog.client.machine import real_rng
from tidelog.client.retries import Retries
from tidelog.clock import MachineClock
from tidelog.spark.options.query_options import QueryOptions
from tidelog.spark.ranges.reading import PATIENCE_MS
from tidelog.spark.ranges.remote_reading import AbortedBehind, RemoteRangeReader
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.obstore_store import open_object_store
from tidelog.tiering.remote_cache import RemoteCache

CACHE_BYTES: Final = 16 << 20
"""Of the indexes of segments: several tasks may read parts of one."""
_KEPT: Final[dict[tuple[int, str], ObjectStore]] = {}
"""By process and URL: the threads of a library do not live on in a forked process."""
_CACHE: Final = RemoteCache(CACHE_BYTES)


def worker_store(url: str) -> ObjectStore:
    """The store at a URL. Raises as `open_object_store`."""
    place = os.getpid(), url
    if place not in _KEPT:
        _KEPT[place] = open_object_store(url, create=False)
    return _KEPT[place]


def remote_reader(query: QueryOptions, aborted_behind: AbortedBehind) -> RemoteRangeReader:
    """The reader of history for a task; nothing is opened yet."""
    clock, rng = MachineClock(), real_rng()
    return RemoteRangeReader(
        worker_store,
        _CACHE,
        aborted_behind,
        lambda: Retries(clock, rng, PATIENCE_MS),
        read_bytes=query.fetch_bytes,
        isolation=query.connection.isolation,
    )
