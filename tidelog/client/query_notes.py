"""What the committed offsets of a streaming query of Spark say about it, for everyone who looks at its group.

Not here: which query has which group (tidelog/spark/streaming/query_identity.py). This module needs no Spark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID

from tidelog.types import Millis, TopicId

TRANSACTIONAL_ID_PREFIX: Final = "spark-source-"

EntryKind = Literal["pinned", "progress"]


def transactional_id_of(group_id: str) -> str:
    """The transactional id under which the offsets of the query are committed."""
    return TRANSACTIONAL_ID_PREFIX + group_id


@dataclass(frozen=True, slots=True)
class EntryNote:
    """What the metadata of a committed offset say."""

    kind: EntryKind
    lineage: str
    digest: str
    """Digest of the query that chose the start."""
    topic_id: TopicId
    at: Millis
    """When it was committed (since 1970)."""

    def to_text(self) -> str:
        """The metadata of the committed offset, some 150 characters."""
        return json.dumps(
            {
                "spark": self.kind,
                "lineage": self.lineage,
                "start": self.digest,
                "topic": str(self.topic_id),
                "at": self.at,
            }
        )


def parse_note(text: str) -> EntryNote | None:
    """The note of an entry; None for an entry that another program committed."""
    try:
        fields = json.loads(text)
        kind, at = fields["spark"], fields["at"]
        lineage, digest, topic_id = str(fields["lineage"]), str(fields["start"]), UUID(fields["topic"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if kind not in ("pinned", "progress") or type(at) is not int:
        return None
    return EntryNote(kind, lineage, digest, TopicId(topic_id), Millis(at))
