"""What a process of nodes occupies: a number of hostile requests, however large, must not let it grow."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import Final, NamedTuple

from tests.node.real_nodes import RealNode, RealNodes

MIB: Final = 1 << 20


class Footprint(NamedTuple):
    """What is in use between two rounds of requests, when none is under way."""

    rss_mib: int
    tasks: int
    files: int
    """Open ones, beside the one of each log: made-up requests create topics, which are no leak."""
    charged: int
    """Bytes that the nodes' memory budgets count for records on their way."""

    def grown_since(self, earlier: Footprint) -> list[str]:
        """What has grown beyond what chance explains: pages that malloc keeps, a fetch that still waits."""
        limits = Footprint(rss_mib=96, tasks=50, files=100, charged=16 * MIB)
        return [
            f"{name} grew from {was} to {now}"
            for name, was, now, limit in zip(self._fields, earlier, self, limits, strict=True)
            if now - was > limit
        ]


def _logs(found: RealNode) -> int:
    replicas = found.node.replicas
    return 0 if replicas is None else len(replicas.registry.by_key)


def footprint(nodes: RealNodes) -> Footprint:
    """The present footprint of the process of these nodes."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    charged = [found.node.metric_sources().memory for found in nodes.nodes.values()]
    return Footprint(
        resident // MIB,
        len(asyncio.all_tasks()),
        len(list(Path("/proc/self/fd").iterdir())) - sum(map(_logs, nodes.nodes.values())),
        sum(sum(figures.used.values()) for figures in charged if figures is not None),
    )
