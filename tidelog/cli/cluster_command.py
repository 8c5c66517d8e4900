"""Commands on a cluster: their common options, and the ways to query nodes and to print results."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import click

from tidelog.cli.cluster_options import CONNECTION, connection_of, profile_defaults
from tidelog.cli.declared import CommandGroup, Option, declared_command, options_of, parameter, with_options
from tidelog.cli.output import Json, error_document, print_json, print_table, printed_warnings
from tidelog.client.admin import Admin, TopicDescription
from tidelog.client.connection import TLS_FAILURES
from tidelog.cluster_connection import ClusterConnection
from tidelog.errors import NodeNotAvailable, TidelogError, UnknownTopicOrPartition
from tidelog.standard_streams import say

Answer = TypeVar("Answer")
Work = TypeVar("Work", bound=Callable[..., None])

ValidateOnly = Annotated[bool, Option("--validate-only", help="Check only, change nothing.")]

_OPTIONS: Final = (parameter("ctx", click.Context), parameter("as_json", Json, default=False))

PATIENCE_MS: Final = 2_000
"""How long commands retry: a person at a terminal can repeat the command, and a restarting node gets this long."""


@asynccontextmanager
async def administrator(connection: ClusterConnection) -> AsyncIterator[Admin]:
    """An Admin client for a command."""
    log = logging.getLogger(TLS_FAILURES)
    level = log.level
    log.setLevel(logging.ERROR)  # the command prints the failure as its error: a warning would repeat it
    try:
        async with Admin(connection.bootstrap, patience_ms=PATIENCE_MS, **connection.of_client) as admin:
            await admin.check_connection()  # a change would wait for each address in turn
            yield admin
    finally:
        log.setLevel(level)


def query(connection: ClusterConnection, call: Callable[[Admin], Awaitable[Answer]]) -> Answer:
    """Return the answer of one or more calls of an Admin client."""

    async def work() -> Answer:
        async with administrator(connection) as admin:
            return await call(admin)

    with printed_warnings():
        return asyncio.run(work())


async def reach(connection: ClusterConnection, topic: str) -> TopicDescription | None:
    """The description of a topic; None if there is none. Raises ConnectionFailed quickly if no node answers: producers
    and consumers retry for longer."""
    # A description needs no permission beyond those for writing or reading the topic.
    async with administrator(connection) as admin:
        with suppress(UnknownTopicOrPartition, NodeNotAvailable):
            return await admin.describe_topic(topic)
    return None


@dataclass(frozen=True, slots=True)
class CommandCall:
    """One run of a command: its cluster, and the form of its output."""

    connection: ClusterConnection
    as_json: bool

    def query(self, call: Callable[[Admin], Awaitable[Answer]]) -> Answer:
        """Return the answer of one or more calls of an Admin client."""
        return query(self.connection, call)

    def report(self, document: Mapping[str, object], *sentences: str) -> None:
        """Print the result of a change: the document for scripts, or the sentences for people."""
        if self.as_json:
            print_json(document)
            return
        for sentence in sentences:
            say(sentence)

    def show(self, document: object, title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
        """Print the result of a query: the document for scripts, or a table for people."""
        if self.as_json:
            print_json(document)
        else:
            print_table(title, columns, rows)


def cluster_command(group: CommandGroup, name: str | None = None) -> Callable[[Work], Work]:
    """Add a command: a function with a `CommandCall` and the command's own options as parameters. The command also has
    --json and the options of connections. A parameter that is a dataclass stands for the options that its fields
    declare."""

    def add(work: Work) -> Work:
        group.commands[name or work.__name__] = declared_on_cluster(work, name or work.__name__)
        return work

    return add


def declared_on_cluster(work: Callable[..., None], name: str, *, prints_errors: bool = True) -> click.Command:
    """The command that `cluster_command` adds. prints_errors: with --json, the error that ends it is its document;
    False: its documents are records, or have the error in them."""
    _call, *own = inspect.signature(work, eval_str=True).parameters.values()
    kinds: dict[str, Any] = {each.name: each.annotation for each in own if dataclasses.is_dataclass(each.annotation)}
    groups = {each: options_of(kind) for each, kind in kinds.items()}

    def run(ctx: click.Context, as_json: bool, **values: Any) -> None:
        for each, options in groups.items():
            values[each] = kinds[each](**{option.name: values.pop(option.name) for option in options})
        given = {each.name: values[each.name] for each in own}
        try:
            work(CommandCall(connection_of(ctx), as_json), **given)
        except TidelogError as error:
            if as_json and prints_errors:
                print_json(error_document(error))
            raise

    options = [option for each in own for option in groups.get(each.name, [each])]
    declared = with_options(run, [*options, *_OPTIONS])
    return declared_command(declared, name, inspect.getdoc(work), more=CONNECTION, defaults=profile_defaults)
