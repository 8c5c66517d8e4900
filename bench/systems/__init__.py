"""The systems that the cluster suite compares: Tidelog, and the peers that a run names.

Each runs three nodes on loopback from its own directory, with three replicas and two of them required. A peer that this
machine does not have raises PeerMissing with what to install; the suite then continues without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bench.systems.jetstream import JetStream
from bench.systems.kafka import Kafka
from bench.systems.rabbitmq import RabbitMq
from bench.systems.system import System

PEERS: Final[Mapping[str, Callable[[Path], System]]] = {"kafka": Kafka, "jetstream": JetStream, "rabbitmq": RabbitMq}
"""By the name that `--peer` takes."""
