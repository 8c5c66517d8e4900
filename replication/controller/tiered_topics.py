"""Rules for topics with a remote tier, when topics are created or their settings change.

Not here: which settings go together (storage/log_config.py), whether the nodes have an object store
(node/requests/topic_settings.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replication.controller import features
from replication.controller.image import ClusterImage
from tidelog.errors import InvalidConfig

REMOTE_STORAGE: Final = "remote.storage.enable"
_SETTINGS: Final = (REMOTE_STORAGE, "local.retention.ms", "local.retention.bytes")


def ensure_tier_allowed(image: ClusterImage, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise UnsupportedVersion if a node may run that does not know these settings, InvalidConfig if a topic with a
    remote tier would lose it. before: the topic's settings until now; empty for a new one."""
    for key in _SETTINGS:
        if after.get(key) != before.get(key):
            features.require(image, features.REMOTE_TIER, f"a change of {key}")
    if _is_tiered(before) and not _is_tiered(after):
        raise InvalidConfig(
            f"{REMOTE_STORAGE} cannot be switched off: records that are in the object store only would be lost; copy "
            "the topic to another one, and delete it"
        )


def _is_tiered(configs: Mapping[str, str]) -> bool:
    return configs.get(REMOTE_STORAGE, "").lower() == "true"
