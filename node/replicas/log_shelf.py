"""Which log belongs to which partition, as the metadata say: those that recovery found, new ones, those nobody knows.

Kept true:
  1. A log that the metadata does not know, or knows as another topic's, is set aside and reported, never deleted.
  2. A log that had held records and is gone, or cannot be used for now, is not made anew while the in-sync or the
     eligible set counts on it.
  3. A replica whose log directory the metadata name is looked for, and made, in no other (KIP-858).

Left to others: what a partition does with its log (partition.py), where logs lie and whose they are (storage/).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from node.runtime.work import run_in
from replication.controller.image import ClusterImage, PartitionState, TopicState
from replication.controller.metadata import LOST_DIRECTORY, UNKNOWN_DIRECTORY
from storage.config import LogConfig
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.log.log import Log
from tidelog.errors import TidelogError
from tidelog.types import METADATA_TOPIC, DirectoryId, NodeId, PartitionKey, TopicId, TopicPartition

_log = logging.getLogger("node.replicas")


class LogShelf:
    """The logs of one node's log directories, the metadata log apart."""

    def __init__(self, me: NodeId, logs: LogManager, defaults: LogConfig) -> None:
        """defaults: what holds for a log where its topic says nothing."""
        self._me = me
        self._logs = logs
        self._defaults = defaults
        self._found: dict[TopicPartition, list[tuple[LogDirectory, Log]]] = {}
        self._unusable: set[PartitionKey] = set()
        self._said: dict[TopicPartition, str] = {}
        self._last_config: tuple[Mapping[str, str], LogConfig] = {}, defaults

    def take_stock(self, image: ClusterImage) -> None:
        """Which of the logs that recovery found does the metadata know here? The others are set aside."""
        for directory in self._logs.directories:
            for name in sorted(directory.logs):
                log = directory.logs[name]
                if name.topic == METADATA_TOPIC:
                    continue
                state = image.partition(PartitionKey(log.topic_id, name.partition))
                if state is None or self._me not in state.replicas:
                    self.set_aside(directory, name, f"the metadata knows no replica of topic id {log.topic_id} here")
                else:
                    self._found.setdefault(name, []).append((directory, log))

    def set_aside(self, directory: LogDirectory, name: TopicPartition, reason: str) -> None:
        """Move a log out of the way; it stays on the disk."""
        try:
            aside = directory.set_aside(name, reason)
            _log.warning("%s was set aside as %s: %s", name, aside, reason)
        except TidelogError as error:
            _log.error("%s was not set aside: %s", name, error.message)

    def find(self, topic: TopicState, state: PartitionState) -> tuple[LogDirectory, Log] | None:
        """What recovery found for this partition in the directory that the metadata name, in any where they name none;
        handed out once. What lies elsewhere is an older copy: with it, the replica would be judged by a directory that
        its records are not in."""
        name = TopicPartition(topic.name, state.partition)
        wanted = state.directory_of(self._me)
        found = [entry for entry in self._found.pop(name, []) if entry[1].topic_id == topic.topic_id]
        fits = [entry for entry in found if wanted in (UNKNOWN_DIRECTORY, LOST_DIRECTORY, entry[0].directory_id)][:1]
        for directory, _ in found:
            if all(directory is not fit for fit, _ in fits):
                self.set_aside(directory, name, "the metadata name another log directory for it")
        if not fits:
            return None
        directory, log = fits[0]
        try:
            config = self._config_of(topic)
            return directory, self._logs.use(directory, log, topic.topic_id, config)
        except TidelogError as error:
            _log.error("%s cannot be used until the node is started again: %s", name, error.message)
            self._unusable.add(state.key)
            return None

    def _config_of(self, topic: TopicState) -> LogConfig:
        """The settings of its logs; read once for all partitions of a topic. Raises InvalidConfig."""
        last, config = self._last_config
        if last is not topic.configs:
            config = LogConfig.from_topic(topic.configs, self._defaults)
            self._last_config = topic.configs, config
        return config

    def why_unfit(self, directory: LogDirectory, log: Log, state: PartitionState) -> str | None:
        """Why the replica must not go on with this log, if there is a reason."""
        if state.directory_of(self._me) not in (UNKNOWN_DIRECTORY, LOST_DIRECTORY, directory.directory_id):
            return "the metadata name another log directory for it"
        return None if log.damage is None or directory.offline is not None else f"damaged: {log.damage}"

    def reconfigure(self, topic: TopicState, log: Log) -> None:
        """Let new settings of the topic hold for its log from now on."""
        try:
            log.reconfigure(self._config_of(topic))
        except TidelogError as error:
            _log.error("%s keeps its settings: %s", log.topic_partition, error.message)

    async def make(self, topic: TopicState, state: PartitionState) -> tuple[LogDirectory, Log] | None:
        """A new log, or None where it cannot be made, or not yet."""
        name = TopicPartition(topic.name, state.partition)
        if self._me in state.counted_on:
            if self._logs.is_missing(state.key):
                self._say(name, "it is gone, although it had held records, and others count on it")
                return None
            if state.key in self._unusable:
                self._say(name, "it is there, and cannot be used, and others count on it: start the node again")
                return None
        self._unusable.discard(state.key)
        wanted = state.directory_of(self._me)
        try:
            config = self._config_of(topic)
            made = await self._make(name, topic.topic_id, config, None if wanted == UNKNOWN_DIRECTORY else wanted)
        except TidelogError as error:
            self._say(name, error.message)
            return None
        self._said.pop(name, None)
        return made

    async def _make(
        self, name: TopicPartition, topic_id: TopicId, config: LogConfig, home: DirectoryId | None
    ) -> tuple[LogDirectory, Log]:
        directory = self._logs.home_of(name, home)
        ticket = directory.begin_log(name, topic_id, config)
        result: Log | BaseException
        try:
            result = await run_in(directory.executor, ticket.run)
        except OSError as error:
            result = error
        return directory, directory.finish_log(ticket, result)

    def give_up(self, directory: LogDirectory, log: Log) -> None:
        """A log was made that is not wanted any more: nothing was appended to it."""
        try:
            directory.delete_log(log.topic_partition)
        except TidelogError as error:
            _log.warning("%s was not deleted: %s", log.topic_partition, error.message)

    def _say(self, name: TopicPartition, why: str) -> None:
        """Why a log was not made: it is tried again and again, and said when it is news."""
        if self._said.get(name) != why:
            self._said[name] = why
            _log.error("%s was not made: %s", name, why)
