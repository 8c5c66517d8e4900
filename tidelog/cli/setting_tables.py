"""Settings of topics and nodes with their sources, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.cluster_descriptions import ConfigInForce, ConfigSource

COLUMNS: Final = ("", "key", "value", "source", "otherwise")
_SOURCES: Final = {
    ConfigSource.TOPIC: "topic",
    ConfigSource.DYNAMIC_NODE: "node, set while it runs",
    ConfigSource.NODE: "node",
    ConfigSource.DEFAULT: "default",
    ConfigSource.GROUP: "group",
}


def is_override(setting: ConfigInForce) -> bool:
    """Whether a value was set, and not left at its default."""
    return setting.source is not ConfigSource.DEFAULT


def setting_rows(settings: Iterable[ConfigInForce]) -> list[tuple[str, ...]]:
    """The rows of a table: what is set is marked, and shown with the value that it replaces."""
    return [
        (
            "*" if is_override(each) else "",
            each.key,
            _shown(each.value),
            _SOURCES[each.source],
            _shown(each.values[1].value) if len(each.values) > 1 else "",
        )
        for each in settings
    ]


def setting_document(setting: ConfigInForce) -> dict[str, object]:
    """For JSON."""
    return {
        "key": setting.key,
        "value": setting.value,
        "source": _SOURCES[setting.source],
        "is_override": is_override(setting),
        "is_read_only": setting.is_read_only,
        "otherwise": [
            {"key": each.key, "value": each.value, "source": _SOURCES[each.source]} for each in setting.values[1:]
        ],
    }


def _shown(value: str | None) -> str:
    return "(unset)" if value is None else value
