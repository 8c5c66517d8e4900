"""The feature level of the metadata: which kinds of record its log may hold.

Kept true: a level is only ever raised, by a controller that knows it; a record of a level is written only once that
level is in force, so that a node of an older version, which would stop at it, is never surprised.
"""

from __future__ import annotations

from typing import Final

from replication.controller.image import ClusterImage
from tidelog.errors import FeatureUpdateFailed, UnsupportedVersion

OFFLINE_DIRECTORIES: Final = 3
LATEST: Final = OFFLINE_DIRECTORIES
"""3: log directories that fail while their node runs. 2: topic settings that change, reassignments. 1: all before."""


def refuse_update(image: ClusterImage, level: int) -> None:
    """Raise FeatureUpdateFailed where the level cannot become this one."""
    if level > LATEST:
        raise FeatureUpdateFailed(
            f"feature level {level} is not known to the active controller, whose version ends at {LATEST}: update "
            "every node first"
        )
    if level < image.feature_level:
        raise FeatureUpdateFailed(
            f"the feature level is {image.feature_level} and cannot go back to {level}: the metadata log may hold "
            f"records that level {level} does not know"
        )


def require(image: ClusterImage, level: int, what: str) -> None:
    """Raise UnsupportedVersion where the cluster is not at that level."""
    if image.feature_level < level:
        raise UnsupportedVersion(
            f"{what} needs feature level {level}, the cluster is at {image.feature_level}: once every node runs this "
            f"version, raise it (`tidelog cluster upgrade`)"
        )
