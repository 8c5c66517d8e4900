"""Nodes that are killed and started again, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Final

from tests.kafka_suites.suite import Nodes

DOWN_S: Final = 2.0
"""Less than a session: the leaders change because the connections break, or when the node is back."""


@contextmanager
def killed_in_turns(cluster: Nodes, every_s: float) -> Iterator[list[int]]:
    """For the length of the block: every so often kill -9 a node, and start it again. All nodes run at its end.
    Yields the nodes that have been killed."""
    ended = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        for node in cycle(range(len(cluster.nodes))):
            if ended.wait(every_s):
                return
            cluster.kill(node)
            killed.append(node)
            ended.wait(DOWN_S)
            cluster.start_node(node)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        ended.set()
        killer.join()
