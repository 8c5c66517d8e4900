"""A real Apache Kafka broker on loopback: one node, its own controller, on a log directory that tests may change while
it is stopped."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID

from kafka.admin import KafkaAdminClient, NewTopic

from node.process.free_ports import free_ports
from storage.checkpoints.checkpoint_file import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    encode_offsets,
    encode_topic_id,
    read_offsets,
    read_partition_metadata,
)
from storage.checkpoints.directory_identity import CLEAN_SHUTDOWN
from storage.files.os_files import OsFiles
from tests.interop.kafka_tools import java_command, run
from tidelog.types import Offset, PartitionIndex, TopicPartition

_PATIENCE_S = 60
_CLUSTER = encode_topic_id(UUID(int=0x7464, version=4))


class Broker:
    """A broker that can be started and stopped again and again. `directory`: its log directory. `said`: its log since
    the last start."""

    def __init__(self, home: Path, settings: Mapping[str, object] | None = None) -> None:
        """home: an empty directory for everything that it writes. settings: beside, or instead of, those below."""
        self.directory = home / "data"
        self._log = home / "broker.log"
        self._properties = home / "server.properties"
        self._ports = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._properties.write_text(
            "".join(f"{name}={value}\n" for name, value in self._settings(settings or {}).items())
        )
        run("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._properties))

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def said(self) -> str:
        """Its log since the last start."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        """Small, and nothing is deleted, cleaned or flushed behind the tests' back."""
        client, controller = self._ports
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.directory,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.retention.ms": -1,
            "log.initial.task.delay.ms": 100,
            "log.flush.start.offset.checkpoint.interval.ms": 200,
            "log.cleaner.enable": "false",
            "log.message.timestamp.after.max.ms": 2**63 - 1,
            "producer.id.expiration.ms": 2**31 - 1,
            "auto.create.topics.enable": "false",
            "num.io.threads": 2,
            "num.network.threads": 1,
            "background.threads": 1,
            **settings,
        }

    def start(self) -> None:
        """Start it and wait until it answers; a start that fails shows its log."""
        command = java_command("kafka.Kafka", str(self._properties))
        command.insert(1, "-Dtidelog.log.level=info")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + _PATIENCE_S
        while "Kafka Server started" not in self.said:
            assert self._process.poll() is None, self.said[-6000:]
            assert time.monotonic() < deadline, self.said[-6000:]
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it cleanly."""
        self._end(kill=False)

    def kill(self) -> None:
        """SIGKILL: nothing is closed."""
        self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(_PATIENCE_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def create_topics(self, configs: dict[str, dict[str, str]], partitions: int = 1) -> dict[str, UUID]:
        """Create topics of so many partitions with these settings. Returns their ids."""
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            admin.create_topics(
                [NewTopic(name, partitions, 1, topic_configs=config) for name, config in configs.items()]
            )
        finally:
            admin.close()
        return {topic: self._topic_id(topic) for topic in configs}

    def mount(self, source: Path, partitions: Iterable[str]) -> None:
        """Put partition directories of another log directory in place of its own, which exist; it is stopped. It reads
        them as a killed node leaves them. The ids of its topics remain."""
        names = sorted(partitions)
        for name in names:
            own = self.directory / name
            identity = (own / PARTITION_METADATA).read_bytes()
            shutil.rmtree(own)
            shutil.copytree(source / name, own)
            (own / PARTITION_METADATA).write_bytes(identity)
        for checkpoint in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT):
            path = self.directory / checkpoint
            kept = {tp: offset for tp, offset in _offsets(str(path)).items() if str(tp) not in names}
            path.write_bytes(encode_offsets(kept))
        (self.directory / CLEAN_SHUTDOWN).unlink()

    def wait_for_log_start(self, topic: str) -> None:
        """Records were deleted: wait until the checkpoint says so."""
        path = str(self.directory / LOG_START_CHECKPOINT)
        deadline = time.monotonic() + _PATIENCE_S
        while TopicPartition(topic, PartitionIndex(0)) not in _offsets(path):
            assert time.monotonic() < deadline, f"{path} does not name {topic}"
            time.sleep(0.05)

    def _topic_id(self, topic: str) -> UUID:
        """The id in the topic's partition directory, which appears a moment after the topic."""
        deadline = time.monotonic() + _PATIENCE_S
        while (found := read_partition_metadata(OsFiles(), f"{self.directory}/{topic}-0")) is None:
            assert time.monotonic() < deadline, f"{topic} has got no directory"
            time.sleep(0.05)
        return found

    def complaints(self) -> list[str]:
        """Warnings and errors of its log that concern storage."""
        return [
            line for line in self.said.splitlines() if re.match(r"(WARN|ERROR|FATAL) .*(log|index|Log|snapshot)", line)
        ]


def _offsets(path: str) -> dict[TopicPartition, Offset]:
    """Kafka makes a checkpoint empty first."""
    return read_offsets(OsFiles(), path) if OsFiles().size(path) else {}
