"""A node in the process of a test, for unit tests: a cluster of one, which is ready in a fraction of a second.

Invariants: its data end with it; a process may have several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from tidelog.cli.server_packages import server_module
from tidelog.testing.arguments import refuse_own_settings, topic_settings
from tidelog.testing.unique_names import unique_name

READY_S: Final = 30.0
"""For a busy machine: on an idle core it is ready in 0.1 s, once the server's packages are imported."""


class InProcessNode:
    """The real node on a thread, with real listeners on 127.0.0.1. `with InProcessNode() as node:`, or `async with`."""

    def __init__(self, *, settings: Mapping[str, object] | None = None) -> None:
        """settings: of the node, by the names of docs/configuration.md. Raises UnsupportedVersion if the server's
        packages are not installed, InvalidConfig for wrong settings and for one that this class chooses."""
        refuse_own_settings(settings)
        self._node: Any = server_module("testbed.embedded_node", "testing").EmbeddedNode(settings)

    def __enter__(self) -> Self:
        try:
            self._node.start(READY_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Stop the node and remove its data. Idempotent."""
        self._node.stop()

    @property
    def bootstrap(self) -> str:
        """Its address, for `tidelog.Producer`, `Consumer` and `Admin`."""
        bootstrap: str = self._node.bootstrap
        return bootstrap

    @property
    def kafka_bootstrap(self) -> str:
        """The same for clients of Kafka."""
        bootstrap: str = self._node.kafka_bootstrap
        return bootstrap

    @property
    def directory(self) -> Path:
        """The directory of its data."""
        directory: Path = self._node.directory
        return directory

    def create_topic(self, name: str | None = None, *, partitions: int = 1, **configs: str) -> str:
        """Create a topic. name: None: one that no other test has. configs: its settings, with `_` for `.`. Returns the
        name."""
        from tidelog.sync import Admin

        chosen = unique_name() if name is None else name
        with Admin(self.bootstrap) as admin:
            admin.create_topic(chosen, partitions=partitions, replication_factor=1, configs=topic_settings(configs))
        return chosen
