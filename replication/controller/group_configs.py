"""Rules for the settings of groups: names, their number, and changes (KIP-848).

A group may have settings before it exists, and keeps them when it is deleted, as in Kafka.
Not here: which settings there are and their valid values (a check given to the controller), their effect
(replication/coordination/groups/group_times.py).
"""

from __future__ import annotations

from typing import Final

from replication.controller.events import AlterGroupConfigs
from replication.controller.image import ClusterImage
from replication.controller.metadata_records import GroupConfigsRecord
from tidelog.errors import InvalidConfig, InvalidRequest

GROUPS_MAX: Final = 10_000
"""Groups with settings in a cluster: every node keeps them in memory."""

GROUP_ID_BYTES_MAX: Final = 1_024
"""Bytes of a group id, in UTF-8."""


def altered(image: ClusterImage, request: AlterGroupConfigs) -> dict[str, str]:
    """The settings of the group after the changes; whether they are valid is not checked. Raises InvalidRequest,
    InvalidConfig."""
    group_id = request.group_id
    if not 0 < len(group_id.encode()) <= GROUP_ID_BYTES_MAX:
        raise InvalidRequest(
            f"a group with an id of {len(group_id.encode())} bytes has no settings: name a group, in 1 to "
            f"{GROUP_ID_BYTES_MAX} bytes; group.consumer.* of the nodes hold for all groups without settings"
        )
    configs = dict(image.group_configs.get(group_id, {}))
    if len({change.key for change in request.changes}) < len(request.changes):
        raise InvalidConfig(f"group {group_id!r}: a setting is changed twice in one request: name it only once")
    for change in request.changes:
        if change.value is None:
            configs.pop(change.key, None)
        else:
            configs[change.key] = change.value
    if configs and group_id not in image.group_configs and len(image.group_configs) >= GROUPS_MAX:
        raise InvalidRequest(
            f"{len(image.group_configs)} groups of the cluster have settings, and at most {GROUPS_MAX} of all users "
            "together can: reset those of groups that are not used any more"
        )
    return configs


def records_of(image: ClusterImage, group_id: str, configs: dict[str, str]) -> tuple[GroupConfigsRecord, ...]:
    """The record that gives the group these settings; none if it has them."""
    return () if configs == image.group_configs.get(group_id, {}) else (GroupConfigsRecord(group_id, configs),)
