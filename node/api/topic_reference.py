"""How a request names a topic of whose partitions it asks."""

from __future__ import annotations

from typing import TypeAlias

TopicReference: TypeAlias = bytes | str
"""The topic id, the bytes as sent, or the topic's name. An id is of one incarnation; a name means whichever topic has
it when the request arrives. Answers repeat what was sent. Nodes send ids only."""
