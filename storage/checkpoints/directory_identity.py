"""Identity of a log directory: its id, cluster and node, and what the last process recorded about its stop.

    DIRECTORY/meta.properties       version, cluster.id, node.id, directory.id      (Kafka's)
              .kafka_cleanshutdown  exists only after a clean stop                  (Kafka's)
              .lock                 locked by the process that uses the directory   (Kafka's)
              registration          number of the node's last registration, and the machine's boot id then

Invariants: the directory id never changes. Cluster and node are written once. The clean-stop marker is durably removed
before anything except the boot id is written. The recorded boot id guarantees that all data written before it was
present in that boot: a process records another boot id only after a clean stop or with its registration.
Not here: what a disk error means (log_directory.py), copies of directories (replication/controller/registration.py).
Source: Kafka's BrokerMetadataCheckpoint and CleanShutdownFileHandler; KIP-858; design section 4, rule 6.
"""

from __future__ import annotations

import json
import random
from typing import Final
from uuid import UUID

from storage.checkpoints import older_directory
from storage.checkpoints.checkpoint_file import decode_topic_id, encode_topic_id
from storage.files.file_system import Files, directory_of, is_full, read_file, write_file
from tidelog.errors import InconsistentClusterId, InvalidConfig, KafkaStorageError
from tidelog.types import DirectoryId, NodeId

META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
REGISTRATION: Final = "registration"
LOCK: Final = ".lock"
_NAMES_BEFORE: Final = frozenset({LOCK, f"{META_PROPERTIES}.tmp", "lost+found"})
"""Names that a directory may contain before it becomes a log directory."""


class DirectoryIdentity:
    """Identity of one log directory that this process has locked."""

    def __init__(self, files: Files, path: str, rng: random.Random, boot_id: bytes) -> None:
        """Lock the directory. An empty or missing one becomes a log directory with a new id. boot_id: of the machine's
        current boot.

        Raises KafkaStorageError if another process uses it, InvalidConfig if it is not a log directory, OSError.
        """
        _make_directory(files, path)
        try:
            self._lock = files.lock(f"{path}/{LOCK}")
        except BlockingIOError as error:
            raise KafkaStorageError(
                f"the log directory {path} is in use by another process: stop that process, or give this node "
                f"another directory"
            ) from error
        try:
            self._read(files, path, rng, boot_id)
        except BaseException:
            self.release()
            raise

    def _read(self, files: Files, path: str, rng: random.Random, boot_id: bytes) -> None:
        self.is_new = files.size(f"{path}/{META_PROPERTIES}") is None
        """True if this process has made it a log directory: nothing was in it."""
        self._files, self._path, self._properties = files, path, _read_properties(files, path, rng)
        self._boot = boot_id.hex()
        self.notes: list[str] = []
        self.was_clean = read_file(files, f"{path}/{CLEAN_SHUTDOWN}") is not None
        """True if the last stop was clean."""
        self.last_registration, boot = self._read_registration()
        """Number of the node's last registration recorded in this directory, -1 for none."""
        self.intact = self.was_clean or boot == self._boot
        """True if all data written before is present, synced or not: after a clean stop, or if the machine has not
        rebooted since the last registration."""
        if self.was_clean:
            if self.last_registration >= 0 and boot != self._boot:
                self._keep_intact()
            files.remove(f"{path}/{CLEAN_SHUTDOWN}")
            files.sync_directory(path)

    @property
    def directory_id(self) -> DirectoryId:
        return DirectoryId(decode_topic_id(self._properties["directory.id"]))

    @property
    def cluster_id(self) -> str | None:
        return self._properties.get("cluster.id")

    @property
    def node_id(self) -> NodeId | None:
        node = self._properties.get("node.id")
        return None if node is None else NodeId(int(node))

    def adopt(self, cluster_id: str, node_id: NodeId) -> None:
        """Assign the directory to a node of a cluster. Durable. Raises InconsistentClusterId, InvalidConfig,
        OSError."""
        if self.cluster_id is not None and self.cluster_id != cluster_id:
            raise InconsistentClusterId(
                f"the log directory {self._path} belongs to cluster {self.cluster_id}, not to {cluster_id}: give this "
                "node a directory of its own cluster, or an empty one"
            )
        if self.node_id is not None and self.node_id != node_id:
            raise InvalidConfig(
                f"the log directory {self._path} belongs to node {self.node_id}, not to node {node_id}: check node.id "
                "and log.dirs"
            )
        changed = {**self._properties, "cluster.id": cluster_id, "node.id": str(node_id)}
        if changed != self._properties:
            _write_properties(self._files, self._path, changed)
            self._properties = changed

    def write_registration(self, number: int) -> None:
        """Record the number of the node's registration, durably. Numbers only grow. The registration has reported any
        data lost before it. Raises OSError."""
        if number == self.last_registration:
            return
        assert number > self.last_registration, f"registration {number} is older than {self.last_registration}"
        before, self.last_registration = self.last_registration, number
        try:
            self._write_registration()
        except OSError:
            self.last_registration = before
            raise

    def _keep_intact(self) -> None:
        """Record the current boot id, in which all data is present, in case this process ends before it registers.
        Skipped if the disk is full: the next process then treats the directory as not intact."""
        try:
            self._write_registration()
        except OSError as error:
            if not is_full(error):
                raise

    def _write_registration(self) -> None:
        text = f"0\n{self.last_registration}\n{self._boot}\n"
        write_file(self._files, f"{self._path}/{REGISTRATION}", text.encode())

    def leave_clean_marker(self) -> None:
        """Write the clean-stop marker, durably. Raises OSError."""
        marker = json.dumps({"version": 0, "brokerEpoch": self.last_registration}, separators=(",", ":"))
        write_file(self._files, f"{self._path}/{CLEAN_SHUTDOWN}", marker.encode())

    def release(self) -> None:
        self._lock.release()

    def _read_registration(self) -> tuple[int, str | None]:
        """The number (-1 for none) and the boot id (None without a file, or in a file of an older version)."""
        data = read_file(self._files, f"{self._path}/{REGISTRATION}")
        if data is None:
            return -1, None
        lines = data.decode("ascii", "replace").split("\n")
        if len(lines) < 2 or lines[0] != "0" or not lines[1].isdigit():
            self.notes.append(f"{self._path}/{REGISTRATION} is damaged: the directory is treated as an older copy")
            return -1, None
        return int(lines[1]), lines[2] if len(lines) > 3 else None


def _make_directory(files: Files, path: str) -> None:
    """Create the directory if it is missing. Make its name and the names of its parents durable."""
    if files.is_directory(path):
        return
    files.make_directory(path)
    while directory_of(path) != path and path != ".":
        path = directory_of(path)
        files.sync_directory(path)


def _read_properties(files: Files, path: str, rng: random.Random) -> dict[str, str]:
    """The contents of meta.properties, created for a new directory."""
    data = read_file(files, f"{path}/{META_PROPERTIES}")
    if data is None:
        others = [name for name in files.list(path) if name not in _NAMES_BEFORE]
        if others:
            raise InvalidConfig(
                f"{path} has no {META_PROPERTIES} but is not empty ({', '.join(others[:3])}…): give this node its "
                "own log directory, or an empty one"
            )
        properties = {"version": "1", "directory.id": encode_topic_id(UUID(int=rng.getrandbits(128), version=4))}
        _write_properties(files, path, properties)
        return properties
    properties = parse_properties(data)
    try:
        if older_directory.is_older(properties):
            properties = older_directory.adopt(files, path, properties, rng)
            _write_properties(files, path, properties)
        decode_topic_id(properties["directory.id"])
        int(properties.get("node.id", "0"))
        if properties["version"] != "1":
            raise ValueError(f"version {properties['version']}")
    except (KeyError, ValueError) as error:
        raise InvalidConfig(
            f"{path}/{META_PROPERTIES} is damaged or has an unknown version ({error}): restore it, or give this node "
            "another directory"
        ) from error
    return properties


def parse_properties(data: bytes) -> dict[str, str]:
    properties = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            properties[name.strip()] = value.strip()
    return properties


def _write_properties(files: Files, path: str, properties: dict[str, str]) -> None:
    text = "".join(f"{name}={value}\n" for name, value in sorted(properties.items()))
    write_file(files, f"{path}/{META_PROPERTIES}", text.encode())
