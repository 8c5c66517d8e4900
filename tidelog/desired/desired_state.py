"""What a cluster should have, or has: the same values for files, for the cluster, and for a snapshot of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tidelog.client.group_metadata import CommittedOffset
from tidelog.security.acls import AclBinding
from tidelog.types import QuotaEntity, ScramMechanism, TopicId, TopicPartition


class ResourceKind(StrEnum):
    """What a file describes; the value is the name of its section."""

    TOPICS = "topics"
    USERS = "users"
    ACLS = "acls"
    QUOTAS = "quotas"
    GROUP_OFFSETS = "group-offsets"


@dataclass(frozen=True, slots=True)
class DesiredTopic:
    """A topic. None: whatever it has; a new one gets what the node's configuration says."""

    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    """Settings of its own, by Kafka's names."""
    topic_id: TopicId | None = None
    """Of a topic that exists. A topic that is created gets another one."""


@dataclass(frozen=True, slots=True)
class PasswordSource:
    """Where the password of a user is: in an environment variable, or in the first line of a file."""

    variable: str = ""
    file: str = ""


ALL_MECHANISMS: Final = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)


@dataclass(frozen=True, slots=True)
class DesiredUser:
    """A user that authenticates by SCRAM."""

    mechanisms: Mapping[ScramMechanism, int | None] = field(default_factory=lambda: dict.fromkeys(ALL_MECHANISMS))
    """With the iterations of each; None: any number."""
    password: PasswordSource | None = None
    """None: no password is known, so that the user cannot be created."""


@dataclass(frozen=True, slots=True)
class DesiredState:
    """All that files, or a cluster, have of the kinds in `kinds`."""

    kinds: frozenset[ResourceKind] = frozenset()
    """The sections that the files have, empty ones included."""
    topics: Mapping[str, DesiredTopic] = field(default_factory=dict)
    users: Mapping[str, DesiredUser] = field(default_factory=dict)
    acls: frozenset[AclBinding] = frozenset()
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    group_offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    """By group; only snapshots have them."""
    missing_topics: Mapping[str, int] = field(default_factory=dict)
    """Incomplete snapshots by their source, with the number of topics that their cluster had and they lack."""
