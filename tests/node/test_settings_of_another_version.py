"""A node starts with topic settings in the metadata that only other versions know."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from storage.log.log import Log
from storage.log_config import LogConfig
from testbed.topic_requests import changed, creating
from tests.node.real_nodes import RealNodes, real_nodes
from tidelog.errors import InvalidConfig
from tidelog.protocol import methods


def logs_of(nodes: RealNodes) -> dict[str, Log]:
    return {log.topic_partition.topic: log for _, log in nodes.nodes[0].node._logs.logs()}


async def test_one_topic_with_an_unknown_setting_does_not_keep_the_node_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting took the whole log directory offline. The log of the topic is loaded, deletes nothing, and is not
    used; all others are."""
    known = LogConfig.from_topic

    def of_older_version(configs: Mapping[str, str], defaults: LogConfig) -> LogConfig:
        if "retention.bytes" in configs:
            raise InvalidConfig('unknown topic setting "retention.bytes"')
        return known(configs, defaults)

    async with real_nodes(tmp_path) as nodes:
        for name, configs in (("newer", {"retention.bytes": "-1"}), ("other", {})):
            request = creating(name=name, partitions=1, replication_factor=1, configs=configs)
            changed(await nodes.call(0, methods.ADMIN_CREATE_TOPICS, request))
        await nodes.wait_until(lambda: {"newer", "other"} <= logs_of(nodes).keys())
        await nodes.stop(0)
        monkeypatch.setattr(LogConfig, "from_topic", of_older_version)
        await nodes.start(0)
        await nodes.wait_whole()
        logs = logs_of(nodes)
        assert logs["newer"].config.retention_ms == -1
        assert logs["other"].config.retention_ms > 0
        image = nodes.nodes[0].node.image
        assert image is not None
        assert [state.leader for state in image.partitions()] == [0, 0]
