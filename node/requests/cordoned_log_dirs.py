"""Kafka's setting `cordoned.log.dirs` of this node (KIP-1066): the cordons of its log directories, as a list of paths.

Invariant: a request leads to the same cordons whatever this node knows of the present ones: what it lists is cordoned,
and what it leaves out is uncordoned, if it gives the whole list.

It is the one setting of a node that changes while the node runs. No file of the node has it: the metadata log does
(replication/controller/node_cordon.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from node.api.config_requests import AlteredResource, ConfigOperation, SettingChange
from replication.controller.events import AlterCordon
from replication.controller.image import ClusterImage
from storage.directory.log_directory import LogDirectory
from tidelog.cluster_descriptions import ConfigInForce, ConfigSource, ConfigValue
from tidelog.errors import InvalidConfig, InvalidRequest
from tidelog.settings import SettingType
from tidelog.types import DirectoryId, NodeId

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"

_ALL: Final = "*"


class CordonedLogDirs:
    """The setting, by the image."""

    def __init__(self, me: NodeId, directories: Sequence[LogDirectory]) -> None:
        self._me, self._directories = me, tuple(directories)

    def described(self, image: ClusterImage) -> ConfigInForce:
        """The setting with its value."""
        default = ConfigValue(CORDONED_LOG_DIRS, "", ConfigSource.DEFAULT)
        node = image.nodes.get(self._me)
        cordoned = () if node is None else node.cordoned_directories
        if not cordoned:
            return ConfigInForce(CORDONED_LOG_DIRS, (default,), SettingType.LIST)
        paths = ",".join(each.path for each in self._directories if each.directory_id in cordoned)
        return ConfigInForce(
            CORDONED_LOG_DIRS,
            (ConfigValue(CORDONED_LOG_DIRS, paths, ConfigSource.DYNAMIC_NODE), default),
            SettingType.LIST,
        )

    def gone(self, image: ClusterImage) -> list[DirectoryId]:
        """The cordoned directories that this node has no more: they were removed from its `log.dirs`, or are not
        mounted."""
        node = image.nodes.get(self._me)
        return [] if node is None else sorted({*node.cordoned_directories} - self._ids())

    def cordons_of(self, asked: AlteredResource, image: ClusterImage) -> list[AlterCordon]:
        """The changes of cordons that a request about this node means, the cordons first: if the second change fails,
        too many directories are cordoned and none too few, and the same request again completes it. image: names the
        cordoned directories that this node has no more. Raises InvalidConfig, InvalidRequest for a change without a
        value."""
        named = [change for change in asked.changes if change.key == CORDONED_LOG_DIRS]
        every = self._ids().union(self.gone(image))  # no list can name those that are gone: it leaves them out
        if not named:
            return self._cordons((), every) if asked.replaces_all else []
        (change,) = named
        match change.operation:
            case ConfigOperation.SET:
                listed = self._listed(change)
                return self._cordons(listed, every - listed)
            case ConfigOperation.DELETE:
                return self._cordons((), every)
            case ConfigOperation.APPEND:
                return self._cordons(self._listed(change), ())
            case ConfigOperation.SUBTRACT:
                return self._cordons((), self._listed(change))
        raise InvalidConfig(f"{change.key}: operation {change.operation} is unknown; it must be 0 to 3")

    def _cordons(self, cordoned: Collection[DirectoryId], uncordoned: Collection[DirectoryId]) -> list[AlterCordon]:
        return [
            AlterCordon(self._me, cordoned=cordons, directories=tuple(sorted(directories)))
            for cordons, directories in ((True, cordoned), (False, uncordoned))
            if directories
        ]

    def _ids(self) -> set[DirectoryId]:
        return {each.directory_id for each in self._directories}

    def _listed(self, change: SettingChange) -> set[DirectoryId]:
        """The directories that a request lists; `*`: all."""
        if change.value is None:  # an empty list would end every cordon
            raise InvalidRequest(f"{change.key} has no value: name one, or use DELETE to reset it to its default")
        paths = [each.strip().rstrip("/") for each in change.value.split(",") if each.strip()]
        if paths == [_ALL]:
            return self._ids()
        known = {each.path: each.directory_id for each in self._directories}
        if unknown := [path for path in paths if path not in known]:
            raise InvalidConfig(
                f"{change.key} names {unknown[0]!r}, which is no log directory of node {self._me}: name those of its "
                f"log.dirs ({_listing(known)}), or {_ALL} for all"
            )
        return {known[path] for path in paths}


def ensure_not_cordoned(asked: AlteredResource) -> None:
    """Raise InvalidRequest if directories of all nodes together are to be cordoned."""
    if any(each.key == CORDONED_LOG_DIRS and each.operation != ConfigOperation.DELETE for each in asked.changes):
        raise InvalidRequest(f"{CORDONED_LOG_DIRS} is a setting of a single node: name the node, and ask it")


def _listing(paths: Iterable[str]) -> str:
    return ", ".join(sorted(paths))
