"""Commands on a cluster: their common options, and the ways to query nodes and to print results."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer

from tidelog.cli.cluster_options import BOOTSTRAP_HELP, bootstrap_of, connection_of
from tidelog.cli.output import Json, print_json, print_table
from tidelog.client.admin import Admin
from tidelog.client.connection import TLS_FAILURES
from tidelog.client_variables import ClientVariable
from tidelog.cluster_connection import DEFAULT_BOOTSTRAP, ClusterConnection
from tidelog.standard_streams import say

Answer = TypeVar("Answer")
Work = TypeVar("Work", bound=Callable[..., None])

ValidateOnly = Annotated[bool, typer.Option("--validate-only", help="Check only, change nothing.")]
Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar=ClientVariable.BOOTSTRAP, help=BOOTSTRAP_HELP, callback=bootstrap_of),
]

PATIENCE_MS: Final = 2_000
"""How long commands retry: a person at a terminal can repeat the command, and a restarting node gets this long."""


def parameter(name: str, kind: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    """A parameter of a command, as Typer reads it."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


_OPTIONS: Final = (
    parameter("ctx", typer.Context),
    parameter("bootstrap", Bootstrap, DEFAULT_BOOTSTRAP),
    parameter("as_json", Json, default=False),
)


@asynccontextmanager
async def administrator(connection: ClusterConnection) -> AsyncIterator[Admin]:
    """An Admin client for a command."""
    log = logging.getLogger(TLS_FAILURES)
    level = log.level
    log.setLevel(logging.ERROR)  # the command prints the failure as its error: a warning would repeat it
    try:
        async with Admin(connection.bootstrap, patience_ms=PATIENCE_MS, **connection.of_client) as admin:
            yield admin
    finally:
        log.setLevel(level)


def query(connection: ClusterConnection, call: Callable[[Admin], Awaitable[Answer]]) -> Answer:
    """Return the answer of one or more calls of an Admin client."""

    async def work() -> Answer:
        async with administrator(connection) as admin:
            return await call(admin)

    return asyncio.run(work())


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


def options_of(declared: type[Any]) -> list[inspect.Parameter]:
    """The fields of a dataclass as parameters of a command, from whose signature Typer reads the options."""
    options = []
    hints = get_type_hints(declared, include_extras=True)
    for field in dataclasses.fields(declared):
        if not hasattr(hints[field.name], "__metadata__"):
            continue  # no option or argument is declared for it: the program sets it
        default, factory = field.default, field.default_factory
        if default is dataclasses.MISSING:
            default = inspect.Parameter.empty if factory is dataclasses.MISSING else factory()
        options.append(parameter(field.name, hints[field.name], default))
    return options


def with_options(run: Callable[..., None], options: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """Give a function the signature of a command with these options. Typer reads the options from the signature, and
    their types also from the annotations."""
    declared = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    run.__dict__["__signature__"] = inspect.Signature(declared)
    run.__annotations__ = {option.name: option.annotation for option in declared}
    return run


def cluster_command(app: typer.Typer, name: str | None = None) -> Callable[[Work], Work]:
    """Add a command: a function with a `CommandCall` and the command's own options as parameters. The command also has
    --bootstrap and --json. A parameter that is a dataclass stands for the options that its fields declare."""

    def add(work: Work) -> Work:
        _call, *own = inspect.signature(work, eval_str=True).parameters.values()
        kinds: dict[str, Any] = {
            each.name: each.annotation for each in own if dataclasses.is_dataclass(each.annotation)
        }
        groups = {name: options_of(kind) for name, kind in kinds.items()}

        def run(ctx: typer.Context, bootstrap: str, as_json: bool, **values: Any) -> None:
            for group, options in groups.items():
                values[group] = kinds[group](**{option.name: values.pop(option.name) for option in options})
            work(CommandCall(connection_of(ctx, bootstrap), as_json), **values)

        options = [option for each in own for option in groups.get(each.name, [each])]
        app.command(name or work.__name__, help=inspect.getdoc(work))(with_options(run, [*options, *_OPTIONS]))
        return work

    return add
