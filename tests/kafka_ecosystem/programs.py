"""Programs around Kafka as processes of their own, and the records that they should have written."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import confluent_kafka

from tests.interop.kafka_tools import java_command
from tests.kafka_suites.suite import HOME, Nodes, Outcome, Verdict

BUILT: Final = HOME / "build" / "kafka-ecosystem"
"""What `make kafka-ecosystem` fetches."""
HERE: Final = Path(__file__).parent
_POLL_S: Final = 0.2
_END_S: Final = 60.0


class Failed(Exception):
    """A program failed, or its result is wrong; the text says which."""


class Row(NamedTuple):
    """A record as text."""

    key: str
    value: str


def java(main: str | Path, *arguments: str) -> list[str]:
    """The command that runs a class, or the single file of a program, with the fetched jars."""
    return java_command(str(main), *arguments, libs=BUILT / "jars")


def jars_missing() -> str:
    return "" if (BUILT / "jars").is_dir() else "its jars are not fetched: `make kafka-ecosystem` does, with Maven"


@contextmanager
def running(command: Sequence[str | Path], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs until the end of the block, and then is asked to end."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
        process.terminate()
        process.wait(_END_S)
    finally:
        process.kill()
        process.wait()


def finished(command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a program to its end. Returns its standard output; raises Failed."""
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    log.write_text(done.stdout + done.stderr)
    if done.returncode:
        raise Failed(f"{_name(log)}: exit code {done.returncode}:\n{_tail(log)}")
    return done.stdout


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, within_s: float = 180) -> None:
    """Wait for what a running program does. Raises Failed."""
    deadline = time.monotonic() + within_s
    while not reached():
        if time.monotonic() > deadline:
            raise Failed(f"{_name(log)} has not done it within {within_s:g} s:\n{_tail(log)}")
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(_POLL_S)
            raise Failed(f"{_name(log)} ended with exit code {code}:\n{_tail(log)}")


def write(cluster: Nodes, topic: str, values: Iterable[str]) -> None:
    """Write records without keys."""
    write_to(cluster.kafka_bootstrap, topic, values)


def write_to(address: str, topic: str, values: Iterable[str]) -> None:
    """The same to another cluster, or to a broker."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 10**6,
        }
    )
    for value in values:
        producer.produce(topic, value=value.encode())
    if producer.flush(60):
        raise Failed(f"{topic}: not all records were acknowledged within 60 s")


def committed(cluster: Nodes, topic: str) -> list[Row]:
    """All records that are committed now, in the order of their partitions."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in partitions])
        rows: dict[int, list[Row]] = {each: [] for each in partitions}
        open_ends = set(partitions)
        while open_ends:
            for message in consumer.consume(10_000, 1):
                error, partition = message.error(), message.partition()
                if error is None:
                    rows[partition].append(Row((message.key() or b"").decode(), (message.value() or b"").decode()))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    open_ends.discard(partition)
                else:
                    raise Failed(f"{topic}: {error}")
        return [row for each in sorted(rows) for row in rows[each]]
    finally:
        consumer.close()


def documented(heading: str, language: str, level: int = 3) -> str:
    """The first block in this language below a heading of docs/kafka.md."""
    page = (HOME / "docs" / "kafka.md").read_text(encoding="utf-8")
    below = page.partition(f"\n{'#' * level} {heading}\n")[2]
    return below.partition(f"\n```{language}\n")[2].partition("\n```\n")[0]


def outcome(test: str, run: Callable[[], None]) -> Outcome:
    """The result of a test that raises Failed if it fails."""
    began = time.monotonic()
    try:
        run()
    except (Failed, subprocess.TimeoutExpired) as error:
        return Outcome(test, Verdict.FAILED, time.monotonic() - began, str(error))
    return Outcome(test, Verdict.PASSED, time.monotonic() - began)


def _name(log: Path) -> str:
    return log.stem


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
