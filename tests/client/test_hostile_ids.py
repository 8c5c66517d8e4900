"""Ids that clients chose, in everything that the command prints: nothing in them is interpreted."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints
from uuid import UUID

import pytest

import tidelog.cli
from tidelog.cli import cluster_command, group_commands, main
from tidelog.cli.output import print_table
from tidelog.cli.topic_description import PartitionExtent, TopicReport
from tidelog.client import offset_resets
from tidelog.client.admin import PartitionDescription, TopicDescription
from tidelog.client.group_admin import GroupDescription, MemberDescription, PartitionLag
from tidelog.client.transaction_admin import OpenTransaction, TransactionDescription, TransactionListing
from tidelog.client.users import UserDescription
from tidelog.cluster_descriptions import (
    ClusterDescription,
    ConfigInForce,
    ConfigSource,
    ConfigValue,
    GroupListing,
    NodeDescription,
    PartitionResult,
    ReassignmentDescription,
    ResourceConfigs,
)
from tidelog.errors import GroupIdNotFound
from tidelog.printable import printable, shell_word
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.types import PartitionIndex, QuotaEntity, TopicPartition

HOSTILE = "[/] a[eu] :smile: \x1b[31m\x1b]0;title\x07 \x9b1m \r\n\u202e\u2028 <b> \\[x]"
"""Closing and opening markup, an emoji's name, sequences for terminals, ends of lines, the other direction, HTML."""

ID = UUID(int=7)
PLACE = TopicPartition("orders", PartitionIndex(0))


def made(kind: type[Any], **given: Any) -> Any:
    """A value whose texts are all hostile; its numbers are 1."""
    values = {}
    for name, hint in get_type_hints(kind).items():
        plain = getattr(hint, "__supertype__", hint)
        values[name] = given.get(name, HOSTILE if plain is str else 1 if plain is int else plain is bool)
    return kind(**values)


def texts_of(document: Any) -> Iterator[str]:
    """All texts in a JSON document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from (key, *texts_of(value))
    elif isinstance(document, list):
        for value in document:
            yield from texts_of(value)


MEMBER = made(MemberDescription, instance_id=HOSTILE, topics=(), assignment=(PLACE,), target=())
DESCRIBED = made(TransactionDescription, partitions=(PLACE,))
BINDING = AclBinding(
    ResourceType.GROUP, HOSTILE, PatternType.LITERAL, HOSTILE, HOSTILE, AclOperation.READ, AclPermission.ALLOW
)
HANGING = made(OpenTransaction, partition=PLACE, description=DESCRIBED, is_hanging=False)
TOPIC = made(TopicDescription, topic_id=ID, configs={HOSTILE: HOSTILE}, partitions=())
CLUSTER = made(
    ClusterDescription,
    nodes=(made(NodeDescription, endpoint=HOSTILE, incarnation=ID),),
    voters=(),
    unanswered_nodes=(),
    controller_silence_ms=0,
    **dict.fromkeys(("leaderless_partitions", "under_min_isr_partitions", "full_partitions", "damaged_partitions"), 0),
)

ANSWERS: dict[tuple[str, ...], tuple[Any, int]] = {
    ("group", "list"): ([made(GroupListing)], 0),
    ("group", "describe", HOSTILE): (
        {HOSTILE: made(GroupDescription, members=(MEMBER,)), "b": GroupIdNotFound(f"there is no group {HOSTILE}")},
        1,
    ),
    ("group", "delete", HOSTILE): ({HOSTILE: None, "b": GroupIdNotFound(HOSTILE)}, 1),
    ("group", "reset-offsets", HOSTILE, "-t", "orders", "--to-latest"): (
        ([offset_resets.OffsetChange(TopicPartition(HOSTILE, PartitionIndex(0)), None, 1)], 0),
        0,
    ),
    ("txn", "list"): ([made(TransactionListing)], 0),
    ("txn", "describe", HOSTILE): ({HOSTILE: DESCRIBED, "b": GroupIdNotFound(HOSTILE)}, 1),
    ("txn", "find-hanging"): ([HANGING], 1),
    ("txn", "abort", HOSTILE): (DESCRIBED, 0),
    ("partition", "who-holds-lso", "orders-0"): ((1, 2, [HANGING], 0), 0),
    ("partition", "moves"): (
        [ReassignmentDescription(TopicPartition(HOSTILE, PartitionIndex(0)), (), (), (), ())],
        0,
    ),
    ("partition", "elect"): ([made(PartitionResult, partition=PLACE, error=None)], 0),
    ("quota", "list"): ({QuotaEntity(HOSTILE, HOSTILE): {HOSTILE: 1.0}}, 0),
    ("acl", "list"): (([BINDING], False), 0),
    ("acl", "remove", "--principal", HOSTILE): ([BINDING], 0),
    ("user", "list"): ([made(UserDescription)], 0),
    ("user", "remove", HOSTILE): ([f"1 ACL of User:{HOSTILE} left"], 0),
    ("topic", "list"): ([TOPIC], 0),
    ("topic", "describe", "orders"): (
        [
            TopicReport(
                replace(TOPIC, partitions=(made(PartitionDescription, replicas=(), isr=(), elr=(), offline=()),)),
                {made(PartitionDescription).partition: PartitionExtent(None, None, None)},
                ResourceConfigs(
                    configs=(ConfigInForce(HOSTILE, (ConfigValue(HOSTILE, HOSTILE, ConfigSource.TOPIC),)),)
                ),
            )
        ],
        0,
    ),
    ("cluster", "status"): (CLUSTER, 0),
}


@pytest.mark.parametrize("words", ANSWERS, ids=lambda words: "-".join(words[:2]))
def test_nothing_that_a_client_chose_is_interpreted(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, code = ANSWERS[words]
    monkeypatch.setattr(cluster_command, "query", lambda _connection, _ask: answer)
    assert main([*words]) == code
    shown = capsys.readouterr()
    assert all(line.isprintable() for line in (shown.out + shown.err).split("\n"))
    forms = printable(HOSTILE), repr(HOSTILE), shell_word(HOSTILE)
    assert any(form in shown.out + shown.err for form in forms), "it is shown"
    assert main([*words, "--json"]) == code
    document = capsys.readouterr().out
    assert document[:-1].isprintable(), "one line"
    assert any(HOSTILE in text for text in texts_of(json.loads(document))), "its value is the same"


def test_the_lag_of_a_group_shows_its_members_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lag = made(PartitionLag, partition=PLACE, committed=None, instance_id=HOSTILE)
    group_commands._print_lags({HOSTILE: [lag]}, clears=False, as_json=False)
    shown = capsys.readouterr().out
    assert shown.count(printable(HOSTILE)) == 4
    assert all(line.isprintable() for line in shown.split("\n"))


def test_a_wrong_word_on_the_command_line_does_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """As `... | xargs tidelog group describe` with an id that looks like an option."""
    assert main(["group", "describe", f"--{HOSTILE}"]) == 2
    assert all(line.isprintable() for line in capsys.readouterr().err.split("\n"))


def test_tables_are_drawn_in_one_place() -> None:
    """Any other use of Rich would interpret the markup of an id again."""
    users = set()
    for path in Path(tidelog.cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rich"):
                users |= {(path.name, alias.name) for alias in node.names}
    assert {name for name, _what in users} == {"output.py"}


def test_a_title_and_a_cell_of_any_text_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HOSTILE, ("a",), [(HOSTILE,), ((HOSTILE, 1),)])
    assert capsys.readouterr().out.count(printable(HOSTILE)) == 3


@pytest.mark.parametrize(
    ("text", "word"),
    [("orders", "orders"), ("[/]", "'[/]'"), ("a'b", "'a'\"'\"'b'"), ("\x1b'\\é\n", r"$'\x1b\x27\x5cé\x0a'")],
)
def test_an_id_in_a_command_to_copy_is_one_word(text: str, word: str) -> None:
    assert shell_word(text) == word
