"""Commands on a cluster: what all of them are given, and how they ask, print and report."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import typer

from tidelog.cli.cluster_options import BOOTSTRAP_HELP, bootstrap_of, connection_of
from tidelog.cli.output import Json, print_json, print_table, report
from tidelog.client.admin import Admin
from tidelog.client.connection import TLS_FAILURES
from tidelog.client_variables import ClientVariable
from tidelog.cluster_connection import DEFAULT_BOOTSTRAP, ClusterConnection

Answer = TypeVar("Answer")
Work = TypeVar("Work", bound=Callable[..., None])

ValidateOnly = Annotated[bool, typer.Option("--validate-only", help="Check only, change nothing.")]
Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar=ClientVariable.BOOTSTRAP, help=BOOTSTRAP_HELP, callback=bootstrap_of),
]

PATIENCE_MS: Final = 2_000
"""How long commands retry: a person at a terminal can repeat the command, and a restarting node gets this long."""

_OPTIONS: Final = (
    inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
    inspect.Parameter("bootstrap", inspect.Parameter.KEYWORD_ONLY, default=DEFAULT_BOOTSTRAP, annotation=Bootstrap),
    inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json),
)


@asynccontextmanager
async def administrator(connection: ClusterConnection) -> AsyncIterator[Admin]:
    """An Admin client for a command."""
    log = logging.getLogger(TLS_FAILURES)
    level = log.level
    log.setLevel(logging.ERROR)  # the command prints the failure as its error: a warning would say it twice
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
    """One call of a command: its cluster, and the form of its output."""

    connection: ClusterConnection
    as_json: bool

    def query(self, ask: Callable[[Admin], Awaitable[Answer]]) -> Answer:
        """Return the answer of one or more calls of an Admin client."""
        return query(self.connection, ask)

    def report(self, document: Mapping[str, object], *sentences: str) -> None:
        """Print the result of a change: the document for scripts, or the sentences for people."""
        report(document, *sentences, as_json=self.as_json)

    def show(self, document: object, title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
        """Print what was found: the document for scripts, or a table for people."""
        if self.as_json:
            print_json(document)
        else:
            print_table(title, columns, rows)


def cluster_command(app: typer.Typer, name: str | None = None) -> Callable[[Work], Work]:
    """Add a command: a function of a `CommandCall` and of its own options; --bootstrap and --json are added to them."""

    def add(work: Work) -> Work:
        _call, *own = inspect.signature(work, eval_str=True).parameters.values()

        def run(ctx: typer.Context, bootstrap: str, as_json: bool, **given: Any) -> None:
            work(CommandCall(connection_of(ctx, bootstrap), as_json), **given)

        # Typer reads the options from the signature, their types from the annotations, and the help from the docstring.
        options = [*own, *_OPTIONS]
        run.__dict__["__signature__"] = inspect.Signature(options)
        run.__annotations__ = {each.name: each.annotation for each in options}
        run.__doc__, run.__name__ = work.__doc__, work.__name__
        app.command(name)(run)
        return work

    return add
