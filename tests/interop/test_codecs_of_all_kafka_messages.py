"""Every message in the jars of Apache Kafka has a codec: what a listener will need is generated without a change."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.interop.kafka_tools import LIBS
from tests.protocol.kafka_messages import Message, generated
from tidelog.protocol.kafka.message_codec import MalformedMessage

pytestmark = pytest.mark.interop

REMOVED = '"validVersions": "none"'
"""In the schemas of requests that Kafka no longer has."""


def schemas() -> Iterator[str]:
    for jar in sorted(Path(os.environ[LIBS]).glob("kafka-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in sorted(archive.namelist()):
                if name.startswith("common/message/") and name.endswith(".json"):
                    yield archive.read(name).decode()


def test_every_message_of_kafka_comes_back_in_every_version() -> None:
    """It takes half a minute: more than 200 messages, and modules for all of them."""
    messages = [generated(schema) for schema in schemas() if REMOVED not in schema]
    assert len(messages) > 230
    for message in messages:
        comes_back(message)


def comes_back(message: Message) -> None:
    @settings(max_examples=10, deadline=None, database=None)
    @given(data=st.data())
    def story(data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(message.versions))
        value = data.draw(message.instances(version))
        encoded = message.codec.encode(value, version)
        assert message.codec.decode(encoded, version) == (value, len(encoded))
        if encoded:
            with pytest.raises(MalformedMessage):
                message.codec.decode(encoded[:-1], version)

    story()
