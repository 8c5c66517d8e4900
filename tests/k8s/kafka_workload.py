"""What a program that uses Kafka does in a pod beside the nodes: `python - COMMAND ... < kafka_workload.py`.

It uses librdkafka alone, and prints the lines of JSON of tests/integration/workload.py.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, Producer

WAIT_S = 30.0


def tell(*fields: object) -> None:
    print(json.dumps(fields), flush=True)


def load(topic: str, partitions: int, seconds: float) -> None:
    """Keeps writing until that time is over or SIGTERM, each partition one record after the other; tells what was
    acknowledged."""
    # Retries are the client's own: idempotent, they write nothing twice.
    producer = Producer({**connection, "enable.idempotence": True, "linger.ms": 0})
    deadline = time.monotonic() + seconds

    def end(*_: object) -> None:
        nonlocal deadline
        deadline = time.monotonic()

    signal.signal(signal.SIGTERM, end)

    def write(partition: int, number: int) -> None:
        value = f"{partition}:{number}"
        producer.produce(topic, value.encode(), partition=partition, on_delivery=told(partition, number, value))

    def told(partition: int, number: int, value: str) -> Callable[[KafkaError | None, Message], None]:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                tell("acked", partition, value, message.offset())
            else:
                tell("refused", partition, value, error.name())
            if time.monotonic() < deadline:
                write(partition, number + 1)

        return on_delivery

    for partition in range(partitions):
        write(partition, 0)
    while len(producer):
        producer.poll(0.1)


def read(topic: str, partitions: int) -> None:
    """All records to the end that there is now, as the only member of a group."""
    consumer = Consumer(
        {
            **connection,
            "group.id": f"{topic}-readers",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    open_ends = set(range(partitions))
    while open_ends:
        message = consumer.poll(WAIT_S)
        if message is None:
            raise SystemExit(f"nothing within {WAIT_S:g} s: {sorted(open_ends)} are not read to their ends")
        error = message.error()
        if error is None:
            tell("read", message.partition(), message.value().decode(), message.offset())
        elif error.code() == KafkaError._PARTITION_EOF:
            open_ends.discard(message.partition())
        else:
            raise SystemExit(str(error))
    consumer.close()


parser = argparse.ArgumentParser(prog="kafka_workload")
parser.add_argument("--bootstrap", default="tidelog:9092", help="the Service: any node that is ready")
parser.add_argument("--tls", metavar="DIRECTORY", help="connect with ca.crt, tls.crt and tls.key of a mounted Secret")
commands = parser.add_subparsers(dest="command", required=True)
for name in ("load", "read"):
    command = commands.add_parser(name)
    command.add_argument("topic")
    command.add_argument("partitions", type=int)
    if name == "load":
        command.add_argument("seconds", type=float)
options = parser.parse_args()
connection = {"bootstrap.servers": options.bootstrap}
if options.tls:
    connection |= {
        "security.protocol": "SSL",
        "ssl.ca.location": f"{options.tls}/ca.crt",
        "ssl.certificate.location": f"{options.tls}/tls.crt",
        "ssl.key.location": f"{options.tls}/tls.key",
    }
if options.command == "load":
    load(options.topic, options.partitions, options.seconds)
else:
    read(options.topic, options.partitions)
