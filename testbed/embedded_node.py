"""A node inside the process of a test: a cluster of one, with an event loop on a thread of its own.

Invariants: nothing is synced, since its data end with it; the process keeps its signals, its standard streams and the
settings of its garbage collector.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from node import config as configuration
from node.config import NodeConfig
from node.process.free_ports import free_ports
from node.process.node import Node
from node.process.process import NodeProcess
from storage.files.file_system import File
from storage.files.os_files import OsFile, OsFiles

HOST: Final = "127.0.0.1"
MEMORY_BYTES: Final = 64 << 20
STOP_S: Final = 10.0

ALONE: Final[Mapping[str, Any]] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


class _UnsyncedFile(OsFile):
    __slots__ = ()

    def sync(self) -> None:
        """No effect: the file ends with its node."""


class UnsyncedFiles(OsFiles):
    """The files of this machine, as `Files`, without any sync."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        return _UnsyncedFile(self.descriptor(path, create=create, read_only=read_only), path)

    def sync_directory(self, path: str) -> None:
        """No effect, as above."""


class _EmbeddedProcess(NodeProcess):
    """A node that its owner stops."""

    def __init__(self, config: NodeConfig, owner: EmbeddedNode) -> None:
        super().__init__(config, UnsyncedFiles())
        self._owner = owner

    def _listen_to_signals(self, node: Node) -> None:
        self._owner.running = node

    async def _ready_changed(self, is_ready: bool) -> None:
        self._health.ready(is_ready=is_ready)
        if is_ready:
            self._owner.ready.set()


class EmbeddedNode:
    """One node, from `start` to `stop`. settings: by the names of docs/configuration.md."""

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tidelog-"))
        grpc_port, kafka_port = free_ports(2)
        self.bootstrap, self.kafka_bootstrap = f"{HOST}:{grpc_port}", f"{HOST}:{kafka_port}"
        self.ready = threading.Event()
        self.running: Node | None = None
        self._failure: BaseException | None = None
        try:
            self._config = self._parsed({**ALONE, **(settings or {})})
        except BaseException:
            shutil.rmtree(self.directory)
            raise
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tidelog node", daemon=True)

    def _parsed(self, settings: Mapping[str, object]) -> NodeConfig:
        values = {
            "node.id": 0,
            "log.dirs": [str(self.directory / "data")],
            "listeners": [f"GRPC://{self.bootstrap}", f"KAFKA://{self.kafka_bootstrap}"],
            "cluster.bootstrap.node.id": 0,
            "controller.quorum.bootstrap.servers": [self.bootstrap],
            **settings,
        }
        # Strings, numbers, booleans and lists of them have the same form in JSON and TOML.
        text = "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items())
        return configuration.parse(text, {}, source="settings", host_name=HOST, memory_bytes=MEMORY_BYTES)

    def start(self, within_s: float) -> None:
        """Start the node and wait until it is ready. Raises TimeoutError, and the error that keeps it from running."""
        self._thread.start()
        if not self.ready.wait(within_s):
            raise TimeoutError(f"the node at {self.bootstrap} was not ready within {within_s:g} s")
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop the node and remove its data. Raises the error that ended it before."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end)
            self._thread.join(STOP_S)
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        if self.running is not None:
            self.running.stop()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 - raised by the calls of its owner
            self._failure = failure
        finally:
            self.ready.set()

    async def _serve(self) -> None:
        await _EmbeddedProcess(self._config, self).run()
