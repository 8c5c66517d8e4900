"""What a change of settings by a client of Kafka's protocol means: the value of each setting afterwards.

The node that gets the request decides it, by an image that is as new as the request; the controller gets values. Of two
requests that add to the same list through different nodes at the same time, one may be lost. Most programs send changes
to the node that Metadata names as the controller, where one follows the other.
Source: Kafka's ConfigurationControlManager and ConfigAdminManager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node.api.config_requests import AlteredResource, ConfigOperation, SettingChange
from replication.controller.events import ConfigChange
from replication.controller.image import DURABILITY
from storage.log_config import TOPIC_SETTINGS, unknown_setting
from tidelog.errors import InvalidConfig, InvalidRequest
from tidelog.settings import SettingType


def ensure_different(changes: Sequence[SettingChange]) -> None:
    """Raise InvalidRequest if a setting is named twice."""
    seen: set[str] = set()
    for each in changes:
        if each.key in seen:
            raise InvalidRequest(f"{each.key} is changed twice in one request: name it only once")
        seen.add(each.key)


def ensure_known(changes: Sequence[ConfigChange], configs: Mapping[str, str]) -> None:
    """Raise InvalidConfig if a setting is to be reset that no topic has: a misspelt name would appear to have changed.

    configs: what the topic sets. It may have a setting of a newer version, which can be removed.
    """
    for change in changes:
        if change.value is None and change.key not in TOPIC_SETTINGS and change.key not in configs:
            raise unknown_setting(change.key)


def ensure_changes_nothing(asked: AlteredResource, *, but: str) -> None:
    """Raise InvalidRequest unless each change of a node resets a setting, which is so already: tools clean up so. but:
    the setting that may change."""
    ensure_different(asked.changes)
    for change in asked.changes:
        if change.operation != ConfigOperation.DELETE and change.key != but:
            raise InvalidRequest(
                f"{change.key} cannot be changed while node {asked.name or 'any'} runs: set it in the configuration of "
                "the node and restart it"
            )


def depends_on_present(asked: AlteredResource) -> bool:
    """Whether the changes depend on the settings that the topic or group has."""
    lists = (ConfigOperation.APPEND, ConfigOperation.SUBTRACT)
    return asked.replaces_all or any(each.operation in lists for each in asked.changes)


def setting_changes(
    asked: AlteredResource, configs: Mapping[str, str], in_force: Mapping[str, str]
) -> tuple[ConfigChange, ...]:
    """The changes of a topic or a group that a request asks for.

    configs: what it sets. in_force: every setting of a topic; a group has no lists. Both matter only if
    `depends_on_present`. Raises InvalidRequest for a setting that is named twice or has no value, InvalidConfig if it
    is no list.
    """
    ensure_different(asked.changes)
    changes = tuple(ConfigChange(each.key, _value(each, in_force)) for each in asked.changes)
    if not asked.replaces_all:
        return changes
    # A client that knows only Kafka's settings does not name durability, and nobody may change it.
    reset = configs.keys() - {each.key for each in changes} - {DURABILITY}
    return (*changes, *(ConfigChange(key, None) for key in sorted(reset)))


def _value(change: SettingChange, in_force: Mapping[str, str]) -> str | None:
    """The value afterwards; None for the default."""
    if change.operation == ConfigOperation.DELETE:
        return None
    if change.operation not in tuple(ConfigOperation):
        raise InvalidRequest(f"{change.key}: operation {change.operation} is unknown; it must be 0 to 3")
    if change.value is None:
        raise InvalidRequest(f"{change.key} has no value: name one, or use DELETE to reset it to its default")
    if change.operation == ConfigOperation.SET:
        return change.value
    declared = TOPIC_SETTINGS.get(change.key)
    if declared is None or declared.kind.type is not SettingType.LIST or change.key not in in_force:
        raise InvalidConfig(f"{change.key} is not a list, so that nothing is added to it or taken out: use SET")
    items = [each.strip() for each in in_force[change.key].split(",")]
    given = [each.strip() for each in change.value.split(",")]
    if change.operation == ConfigOperation.SUBTRACT:
        return ",".join(each for each in items if each not in given)
    return ",".join([*items, *(each for each in given if each not in items)])
