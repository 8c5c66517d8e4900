"""The feature level of the metadata: which kinds of records the metadata log may contain, and what every node can do.

Invariant: a level is only raised, and only by a controller that knows it. Records of a level are written only once that
level is in effect, so that no node of an older version, which would stop at them, receives them. A node that does not
know the level in effect ends, so that every node that runs can do what the level says. A level is raised only while
every registered node is known to know it, so that none ends by that. One that is down and has no replica does not
count, since it may be gone for good. A node says what it knows with each heartbeat and not in its registration: a
controller of an older version would lose it there, and with that the upgrade until the next restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replication.controller.image import ClusterImage
from tidelog.errors import FeatureUpdateFailed, UnsupportedVersion
from tidelog.types import NodeId

OFFLINE_DIRECTORIES: Final = 3
ACLS: Final = 4
SCRAM_CREDENTIALS: Final = 4
CLIENT_QUOTAS: Final = 4
COORDINATORS: Final = 5
TRANSACTIONS_2: Final = 6
GROUP_CONFIGS: Final = 7
NODE_REMOVAL: Final = 8
CORDONS: Final = 9
DIRECTORY_CORDONS: Final = 10
QUEUED_MOVES: Final = 10
TOPIC_SNAPSHOTS: Final = 11
REMOTE_TIER: Final = 11
LATEST: Final = 11
"""11: snapshots of topics; every node can copy segments to an object store. 10: cordoned log directories, queued
moves. 9: cordoned nodes. 8: removal of nodes. 7: settings of groups. 6: every node serves transactions of version 2
to clients of Kafka (KIP-890); no new records. 5: every node can coordinate groups and transactions, and append the
markers of transactions; no new records. 4: access control entries, SCRAM credentials, client quotas. 3: log
directories that fail while their node runs. 2: changes of topic settings, reassignments. 1: all else."""

_NAMED_MAX: Final = 5
"""Nodes that an error names."""

TRANSACTION_VERSION: Final = "transaction.version"
"""Kafka's feature, which follows the level. Level 1: leaders verify transactions; level 2: each transaction has an
epoch of its own; level 0, neither, is below every level here."""

TRANSACTION_VERSIONS: Final = range(3)


def transaction_version(level: int) -> int:
    """The level of TRANSACTION_VERSION at this feature level."""
    return 2 if level >= TRANSACTIONS_2 else 1


def refuse_update(image: ClusterImage, level: int, known: Mapping[NodeId, int]) -> None:
    """Raise FeatureUpdateFailed if the level cannot be changed to this one. known: the highest level that each node
    knows, as far as it has said so since it registered."""
    if level > LATEST:
        raise FeatureUpdateFailed(
            f"feature level {level} is unknown to the active controller, which supports levels up to {LATEST}: upgrade "
            "every node first"
        )
    if level < image.feature_level:
        raise FeatureUpdateFailed(
            f"the feature level is {image.feature_level} and cannot go back to {level}: the metadata log may contain "
            f"records that level {level} does not support"
        )
    lacking = {node: known.get(node, 0) for node in image.nodes if known.get(node, 0) < level}
    if level == image.feature_level or not lacking:
        return
    holding = {node for state in image.partitions() for node in state.replicas}
    in_use = [node for node in sorted(lacking) if node in holding or not image.nodes[node].fenced]
    if in_use:
        names = ", ".join(_known_to(node, lacking[node]) for node in in_use[:_NAMED_MAX])
        more = f" and {len(in_use) - _NAMED_MAX} more" if len(in_use) > _NAMED_MAX else ""
        raise FeatureUpdateFailed(
            f"the feature level cannot be raised to {level}, because these nodes would end: {names}{more}; start each "
            "with this version and try again. A node that is gone for good counts until its replicas are on others "
            "(`tidelog cluster rebalance --drain`), or until it is removed (`tidelog node remove`)"
        )


def _known_to(node: NodeId, level: int) -> str:
    return f"node {node} (knows level {level})" if level else f"node {node} (has not said which levels it knows)"


def require(image: ClusterImage, level: int, what: str) -> None:
    """Raise UnsupportedVersion if the cluster is below that level."""
    if image.feature_level < level:
        raise UnsupportedVersion(
            f"{what} needs feature level {level}, the cluster has level {image.feature_level}: once every node runs "
            f"this version, raise it (`tidelog cluster upgrade`)"
        )
