"""Upgrade of a log directory of Kafka before 3.7: the directory gets an id, and its logs get topic ids.

A directory of a ZooKeeper-based Kafka (version 0) contains only its broker and cluster, and its logs may have no topic
ids. Missing topic ids are derived from the cluster id and the topic name, so that all brokers and all their directories
derive the same id. A directory of KRaft before 3.7 lacks only its own id.

Invariants: the metadata of the logs is durable before meta.properties marks the directory as upgraded. A crash in
between repeats the work with the same result.
Not here: reading and writing meta.properties (directory_identity.py).
Source: Kafka's BrokerMetadataCheckpoint and MetaProperties; KIP-516, KIP-858.
"""

from __future__ import annotations

import random
from uuid import UUID, uuid5

from storage.checkpoints.checkpoint_file import (
    PARTITION_DIRECTORY,
    PARTITION_METADATA,
    decode_topic_id,
    encode_topic_id,
    write_partition_metadata,
)
from storage.files.file_system import Files
from tidelog.types import TopicId


def is_older(properties: dict[str, str]) -> bool:
    """True if these properties lack only what an older Kafka did not write."""
    return "directory.id" not in properties and "cluster.id" in properties and properties.get("version") in ("0", "1")


def adopt(files: Files, path: str, properties: dict[str, str], rng: random.Random) -> dict[str, str]:
    """Write a topic id for each log of the directory, durably. Returns the new properties of the directory.

    Raises KeyError or ValueError if `properties` contain no broker or no cluster, OSError.
    """
    cluster = properties["cluster.id"]
    node = str(int(properties["broker.id" if properties["version"] == "0" else "node.id"]))
    if properties["version"] == "0":
        _write_topic_ids(files, path, cluster)
    directory_id = encode_topic_id(UUID(int=rng.getrandbits(128), version=4))
    return {"version": "1", "cluster.id": cluster, "node.id": node, "directory.id": directory_id}


def _write_topic_ids(files: Files, path: str, cluster: str) -> None:
    for name in files.list(path):
        match = PARTITION_DIRECTORY.fullmatch(name)
        directory = f"{path}/{name}"
        if (
            match is None
            or not files.is_directory(directory)
            or files.size(f"{directory}/{PARTITION_METADATA}") is not None
        ):
            continue
        write_partition_metadata(files, directory, topic_id_of(cluster, match["topic"]), sync=True)


def topic_id_of(cluster: str, topic: str) -> TopicId:
    """The id of a topic that was created without one. Raises ValueError if `cluster` is not a cluster id."""
    return TopicId(uuid5(decode_topic_id(cluster), topic))
