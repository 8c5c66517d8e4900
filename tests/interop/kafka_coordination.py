"""What Kafka's command line tools say of groups, transactions and the records of coordinators."""

from __future__ import annotations

import json
import re

from tests.interop.coordinator_records import Printed
from tests.interop.kafka_tools import run
from tidelog.types import PartitionIndex, TopicPartition

_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_SILENCE_MS = "5000"
"""After which the console consumer has seen all records."""


def _aligned(output: str) -> list[dict[str, str]]:
    """The rows of all tables in the output by their headers, below which each cell begins. The last header may stand
    for cells of its own."""
    rows: list[dict[str, str]] = []
    starts: list[tuple[str, int]] = []
    for line in output.splitlines():
        if line.startswith("GROUP "):
            starts = [(found[0], found.start()) for found in re.finditer(r"\S+( \(ID\))?", line)]
        elif starts and line.strip() and not line.startswith("Consumer group"):
            ends = [start for _, start in starts[1:]] + [len(line)]
            rows.append({name: line[start:end].strip() for (name, start), end in zip(starts, ends, strict=True)})
    return rows


def _tabbed(output: str) -> list[dict[str, str]]:
    """The rows of the table in the output by their headers."""
    header, *rows = [[cell.strip() for cell in line.split("\t")] for line in output.splitlines() if "\t" in line]
    return [dict(zip(header, row, strict=True)) for row in rows]


def _groups(address: str, *options: str) -> list[dict[str, str]]:
    return _aligned(run(_GROUPS, "--bootstrap-server", address, "--describe", *options)[0])


def group_states(address: str) -> dict[str, tuple[str, int]]:
    """State and number of members of each group."""
    rows = _groups(address, "--all-groups", "--state")
    return {row["GROUP"]: (row["STATE"], int(row["#MEMBERS"])) for row in rows}


def group_offsets(address: str) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets of each group."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for row in _groups(address, "--all-groups", "--offsets"):
        if row["CURRENT-OFFSET"] != "-":
            partition = TopicPartition(row["TOPIC"], PartitionIndex(int(row["PARTITION"])))
            found.setdefault(row["GROUP"], {})[partition] = int(row["CURRENT-OFFSET"])
    return found


def group_members(address: str, group: str) -> list[dict[str, str]]:
    """The members of a group as the tool shows them."""
    return _groups(address, "--group", group, "--members", "--verbose")


def listed_transactions(address: str) -> dict[str, tuple[int, str]]:
    """Producer id and state of each transactional id."""
    output, _ = run(_TRANSACTIONS, "--bootstrap-server", address, "list")
    return {row["TransactionalId"]: (int(row["ProducerId"]), row["TransactionState"]) for row in _tabbed(output)}


def described_transaction(address: str, transactional_id: str) -> dict[str, str]:
    """A transactional id, without what depends on the broker and the time."""
    output, _ = run(_TRANSACTIONS, "--bootstrap-server", address, "describe", "--transactional-id", transactional_id)
    [row] = _tabbed(output)
    return row


def end_transaction(address: str, transactional_id: str) -> None:
    """Have the coordinator abort the open transaction."""
    run(
        _TRANSACTIONS,
        *("--bootstrap-server", address, "forceTerminateTransaction", "--transactionalId", transactional_id),
    )


def console_output(address: str, topic: str, isolation: str, *options: str) -> str:
    """What the console consumer prints for a topic, until no further record comes."""
    output, _ = run(
        _CONSUMER,
        *("--bootstrap-server", address, "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--isolation-level", isolation, "--timeout-ms", _SILENCE_MS, *options),
        is_silent=True,
    )
    return output


def internal_records(address: str, topic: str, formatter: str) -> list[Printed]:
    """The records that a formatter of the console consumer prints."""
    name = f"org.apache.kafka.tools.consumer.{formatter}"
    output = console_output(address, topic, "read_uncommitted", "--formatter", name)
    decoder, found = json.JSONDecoder(), []
    rest = output.strip()
    while rest:
        each, end = decoder.raw_decode(rest)
        key, value = each["key"], each["value"]
        found.append(
            Printed(
                {"type": str(key["type"]), "data": key["data"]},
                value and {"version": str(value["version"]), "data": value["data"]},
            )
        )
        rest = rest[end:].lstrip()
    return found
