"""A log directory of a Kafka before 3.7 becomes one of today's: it gets an id of its own, and its logs get topic ids.

A directory of ZooKeeper's days (version 0) knows its broker and its cluster only, and its logs may be without topic
ids. Those are made from the cluster's id and the topic's name, so that every broker, and every directory of one, gives
a topic the same. A directory of KRaft before 3.7 lacks its own id only.

Kept true: the logs' metadata is durable before meta.properties says that the directory is new; a crash between the two
repeats the work, with the same result.
Left to others: how meta.properties is read and written (directory_identity.py).
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
    """Do these properties lack what a directory has today, and are they whole otherwise?"""
    return "directory.id" not in properties and "cluster.id" in properties and properties.get("version") in ("0", "1")


def adopt(files: Files, path: str, properties: dict[str, str], rng: random.Random) -> dict[str, str]:
    """Give each log of the directory its topic id, durably. Returns the properties that the directory has from now on.

    Raises KeyError or ValueError where `properties` name no broker or no cluster, OSError.
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
    """The id of a topic that was made without one. Raises ValueError where `cluster` is no cluster's id."""
    return TopicId(uuid5(decode_topic_id(cluster), topic))
