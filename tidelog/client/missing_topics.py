"""Finds the topics of a subscription that do not exist, and logs each once. Pure, except for the log.

Not here: the metadata (cluster.py), assignments (group_core.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tidelog.client.cluster import NEW_TOPIC_MS, ClusterView
from tidelog.types import Millis

_log = logging.getLogger("tidelog.client")


class MissingTopics:
    """The named topics of a group's member that no node has reported yet."""

    def __init__(self, group_id: str, topics: Iterable[str]) -> None:
        self._group_id = group_id
        self._unseen = list(topics)
        self._since: Millis | None = None
        """When a node first answered without one of the topics."""
        self._warned: set[str] = set()

    def due(self, at: Millis) -> list[str]:
        """Return the topics to query again: they have been missing for longer than a node usually lags behind."""
        if self._since is None or at - self._since < NEW_TOPIC_MS:
            return []
        return [topic for topic in self._unseen if topic not in self._warned]

    def note(self, view: ClusterView, at: Millis) -> None:
        """Compare the topics with the answer of a node, and log newly missing ones."""
        for topic in [topic for topic in self._unseen if topic in view.topics]:
            self._unseen.remove(topic)
            if topic in self._warned:
                _log.info("group %r: topic %r exists now", self._group_id, topic)
        if self._unseen and self._since is None:
            self._since = at
        for topic in self.due(at):
            self._warned.add(topic)
            error = view.errors.get(topic)
            _log.warning(
                "group %r: topic %r does not exist, or this user may not describe it%s. Check the spelling (`tidelog "
                "topic list`), create it or grant the permission; the group reads it as soon as it exists, without a "
                "restart",
                self._group_id,
                topic,
                "" if error is None else f" ({error.message.rstrip('.')})",
            )
