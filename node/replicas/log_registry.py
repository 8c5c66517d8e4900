"""The logs of this node's replicas: assigns recovered logs to partitions, and creates missing ones.

Invariants:
  1. A log that is not in the metadata, or belongs to another topic there, is set aside and reported, never deleted.
  2. A log that had records and is missing, or cannot be used, is not created again while the replica is in the in-sync
     or the eligible set. One that is missing was reported at registration, so its replica leads only if an unclean
     election accepted the loss: then the log is created.
  3. If the metadata names the log directory of a replica, its log is used and created only there (KIP-858).

Not here: the use of a log (replica.py), log directories and the identity of logs (storage/directory/).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from node.runtime.work import run_in
from replication.controller.image import ClusterImage, PartitionState, TopicState
from replication.controller.metadata_records import LOST_DIRECTORY, UNKNOWN_DIRECTORY
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.log.log import Log
from storage.log_config import LogConfig
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.types import METADATA_TOPIC, NO_NODE, DirectoryId, NodeId, PartitionKey, TopicId, TopicPartition

_log = logging.getLogger("node.replicas")


class LogRegistry:
    """The logs of one node's log directories, the metadata log apart."""

    def __init__(self, me: NodeId, logs: LogManager, defaults: LogConfig) -> None:
        """defaults: the settings of a log that its topic does not set."""
        self._me = me
        self._logs = logs
        self._defaults = defaults
        self._found: dict[PartitionKey, list[tuple[LogDirectory, Log]]] = {}
        self._unusable: set[PartitionKey] = set()
        self._logged: dict[TopicPartition, str] = {}
        self._last_config: tuple[Mapping[str, str], LogConfig] = {}, defaults

    def assign_recovered(self, image: ClusterImage) -> None:
        """Register the recovered logs that the metadata assigns to this node, and set the others aside."""
        for directory in self._logs.directories:
            for name in sorted(directory.logs):
                log = directory.logs[name]
                if name.topic == METADATA_TOPIC:
                    continue
                key = PartitionKey(log.topic_id, name.partition)
                state = image.partition(key)
                if state is None or self._me not in state.replicas or image.topics[log.topic_id].name != name.topic:
                    self.set_aside(directory, name, f"the metadata has no replica of topic id {log.topic_id} here")
                else:
                    self._found.setdefault(key, []).append((directory, log))

    def set_aside(self, directory: LogDirectory, name: TopicPartition, reason: str) -> None:
        """Rename a log to a stray and keep it on disk."""
        try:
            aside = directory.set_aside(name, reason)
            _log.warning("%s: its log was set aside as %s: %s", name, aside, reason)
        except TidelogError as error:
            _log.error("%s: its log could not be set aside: %s", name, error.message)

    def find(self, topic: TopicState, state: PartitionState) -> tuple[LogDirectory, Log] | None:
        """The recovered log of a partition, returned once; None if there is none or it cannot be used. One whose topic
        has invalid settings waits until they are corrected.

        It must be in the directory that the metadata names; if it names none, any directory fits. A log elsewhere is
        an older copy and is set aside: the metadata would rate the replica by a directory without its records. But the
        log may have been moved from there (storage/directory/future_log.py): then it is used, and reported."""
        name = TopicPartition(topic.name, state.partition)
        wanted = state.directory_of(self._me)
        found = self._found.pop(state.key, None)
        if found is None:
            return None
        found.sort(key=lambda entry: entry[1].moved_from is not None)
        fits = [entry for entry in found if wanted in (UNKNOWN_DIRECTORY, LOST_DIRECTORY, entry[0].directory_id)][:1]
        fits = fits or [entry for entry in found if entry[1].moved_from == wanted]
        if fits and fits[0][1].moved_from == wanted and self._logs.working_one(wanted) is None:
            # Its copy may have been discarded after a failure, and then the log here is older.
            self._found[state.key] = fits
            self._log_once(
                name, f"it was moved from log directory {wanted}, which is offline or gone: restore that one"
            )
            return None
        for directory, log in found:
            if all(directory is not fit for fit, _ in fits):
                if log.moved_from is None:
                    self.set_aside(directory, name, "the metadata names another log directory for it")
                else:  # the move was interrupted between its renames: both are the same
                    self.give_up(directory, log)
        if not fits:
            return None
        directory, log = fits[0]
        try:
            config = self._config_of(topic)
        except InvalidConfig as error:
            self._found[state.key] = fits
            self._log_once(name, f"correct the settings of its topic: {error.message}")
            return None
        try:
            return directory, self._logs.use(directory, log, topic.topic_id, config)
        except TidelogError as error:
            _log.error("%s: its log cannot be used; restart the node to try again: %s", name, error.message)
            self._unusable.add(state.key)
            return None

    def _config_of(self, topic: TopicState) -> LogConfig:
        """The settings of the topic's logs, parsed once for all its partitions. Raises InvalidConfig."""
        last, config = self._last_config
        if last is not topic.configs:
            config = LogConfig.from_topic(topic.configs, self._defaults)
            self._last_config = topic.configs, config
        return config

    def why_unfit(self, directory: LogDirectory, log: Log, state: PartitionState) -> str | None:
        """Why the log of this replica is set aside and a new one made; None if it stays. A damaged log stays while
        there is no leader to fetch it from: an unclean election may need its readable records."""
        fits = UNKNOWN_DIRECTORY, LOST_DIRECTORY, directory.directory_id, log.moved_from
        if state.directory_of(self._me) not in fits:
            return "the metadata names another log directory for it"
        if log.damage is None or directory.offline is not None or state.leader == NO_NODE:
            return None
        return f"damaged: {log.damage}"

    def reconfigure(self, topic: TopicState, log: Log) -> None:
        """Apply new settings of the topic to its log."""
        try:
            log.reconfigure(self._config_of(topic))
        except TidelogError as error:
            _log.error("%s: new topic settings were not applied to its log: %s", log.topic_partition, error.message)

    async def make(self, topic: TopicState, state: PartitionState) -> tuple[LogDirectory, Log] | None:
        """Create a log. Returns None if that failed or is not allowed now; the caller tries again."""
        if state.key in self._found:
            return None  # the recovered one is used once the settings of the topic are valid
        name = TopicPartition(topic.name, state.partition)
        if self._me in state.counted_on:
            if self._logs.is_missing(state.key) and state.leader != self._me:
                self._log_once(name, "it had records and is missing; waiting until the replica has left both sets")
                return None
            if state.key in self._unusable:
                self._log_once(name, "it exists but is unusable; restart the node, or wait until it is in neither set")
                return None
        lost = self._me in state.counted_on and self._logs.is_missing(state.key)
        self._unusable.discard(state.key)
        wanted = state.directory_of(self._me)
        try:
            config = self._config_of(topic)
            made = await self._make(name, topic.topic_id, config, None if wanted == UNKNOWN_DIRECTORY else wanted)
        except TidelogError as error:
            self._log_once(name, error.message)
            return None
        self._logged.pop(name, None)
        if lost:
            _log.error("%s: unclean election of a replica whose log was missing: its records are lost", name)
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
        """Delete a log that was not used, and that the metadata no longer requires."""
        try:
            directory.delete_log(log.topic_partition)
        except TidelogError as error:
            _log.warning("%s: its unused log was not deleted: %s", log.topic_partition, error.message)

    def discard(self, key: PartitionKey) -> None:
        """Delete the recovered log of a replica that was removed before it used the log."""
        for directory, log in self._found.pop(key, ()):
            self.give_up(directory, log)

    def _log_once(self, name: TopicPartition, why: str) -> None:
        """Log why a log is not in use; repeated attempts with the same reason are not logged."""
        if self._logged.get(name) != why:
            self._logged[name] = why
            _log.error("%s: its log is not in use: %s", name, why)
