"""Changes of topics' settings, for `tidelog topic` and `tidelog config`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from tidelog.client.admin import Admin, TopicSettingWarning
from tidelog.desired.change_driver import change_topic
from tidelog.desired.change_planner import TopicChange
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.standard_streams import say


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of the cluster and print them at the end."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TopicSettingWarning)
        yield texts
    texts += dict.fromkeys(str(each.message) for each in caught)
    for text in texts:
        say(f"warning: {text}")


def parsed_settings(given: Iterable[str]) -> dict[str, str]:
    """Parse KEY=VALUE settings. Raises InvalidConfig."""
    configs = {}
    for setting in given:
        key, separator, value = setting.partition("=")
        if not separator:
            raise InvalidConfig(f"--config {setting!r}: write KEY=VALUE, for example min.insync.replicas=2")
        configs[key] = value
    return configs


def setting_changes(config: Iterable[str] | None, default: Iterable[str] | None) -> dict[str, str | None]:
    """The changes that --config and --default name; None resets a setting. Raises InvalidConfig."""
    return {**parsed_settings(config or ()), **dict.fromkeys(default or ())}


async def alter_topics(
    admin: Admin,
    names: Iterable[str],
    changes: Mapping[str, str | None],
    partitions: int = 0,
    *,
    replication_factor: int = 0,
    validate_only: bool,
) -> dict[str, TidelogError]:
    """Change settings of topics, and their number of partitions and of replicas unless it is 0. Returns the errors of
    those that were not changed."""
    failed: dict[str, TidelogError] = {}
    for name in dict.fromkeys(names):
        try:
            change = TopicChange(name, partitions, replication_factor, changes)
            await change_topic(admin, change, validate_only=validate_only)
        except TidelogError as error:
            failed[name] = error
    return failed
