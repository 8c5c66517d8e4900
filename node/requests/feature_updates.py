"""Features as Kafka's clients name them (KIP-584): what a requested level of one means for the feature level of the
cluster.

There is one such feature, `transaction.version`, which follows the feature level. Both are only raised: a level that is
in effect stays, where a broker of Kafka would let transactions go back to their first version.
Source: Kafka's FeatureControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from node.api.admin_requests import FeatureUpdate, FeatureUpdateType
from replication.controller import features
from replication.controller.features import TRANSACTION_VERSION, TRANSACTION_VERSIONS
from replication.controller.image import ClusterImage
from tidelog.errors import InvalidUpdateVersion

NAME_SHOWN: Final = 100
"""Characters of a name in errors."""


def level_with(image: ClusterImage, updates: Iterable[FeatureUpdate]) -> int:
    """The feature level that the cluster needs for these updates: its present one, or a higher one. Raises
    InvalidUpdateVersion for one that is not possible; nothing is changed then, as in Kafka."""
    level = image.feature_level
    for update in {each.name: each for each in updates}.values():  # of a feature named twice, Kafka takes the last
        _refuse_impossible(image, update)
        if update.level > features.transaction_version(level):
            level = features.TRANSACTIONS_2
    return level


def _refuse_impossible(image: ClusterImage, update: FeatureUpdate) -> None:
    """Raise InvalidUpdateVersion for the first of Kafka's reasons that holds."""
    what = f"feature {update.name[:NAME_SHOWN]} cannot get level {update.level}"
    if update.type not in tuple(FeatureUpdateType):
        raise InvalidUpdateVersion(
            f"{what}: update type {update.type} is unknown; use 1 (upgrade), 2 (safe downgrade) or 3 (unsafe downgrade)"
        )
    if update.name != TRANSACTION_VERSION:
        raise InvalidUpdateVersion(
            f"{what}: nodes have only the feature {TRANSACTION_VERSION}; all else that needs every node to have this "
            "version comes with `tidelog cluster upgrade`"
        )
    if update.level not in TRANSACTION_VERSIONS:
        raise InvalidUpdateVersion(
            f"{what}: nodes support levels {TRANSACTION_VERSIONS[0]} to {TRANSACTION_VERSIONS[-1]}"
        )
    present = features.transaction_version(image.feature_level)
    if update.level < present:
        raise InvalidUpdateVersion(
            f"{what}: it has level {present}, and nothing lowers the level of a cluster; nodes serve clients that "
            "use the first version of transactions at every level"
        )
    if update.level > present and update.type != FeatureUpdateType.UPGRADE:
        raise InvalidUpdateVersion(f"{what} by a downgrade: it has level {present}; request an upgrade")
