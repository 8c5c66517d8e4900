"""The root command with all subcommands, and its error handling."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

import tidelog
from tidelog.cli import (
    acl_commands,
    certs_commands,
    cluster_commands,
    group_commands,
    job_commands,
    log_commands,
    node_commands,
    partition_commands,
    quorum_commands,
    quota_commands,
    record_commands,
    spark_commands,
    topic_commands,
    transaction_commands,
    user_commands,
)
from tidelog.cli.cluster_command import cluster_command, options_of, parameter, with_options
from tidelog.cli.cluster_options import BOOTSTRAP_HELP, CredentialOptions
from tidelog.cli.command_line import HELP_OPTIONS, run_command
from tidelog.cli.up import up

app = typer.Typer(
    name="tidelog",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP_OPTIONS,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"tidelog {tidelog.__version__}\n")
        raise typer.Exit


def _options(ctx: typer.Context, version: bool, bootstrap: str | None, **credentials: Any) -> None:
    """Tidelog: a replicated log. Commands use the nodes in --bootstrap or TIDELOG_BOOTSTRAP."""
    del version, bootstrap  # handled by their callbacks
    given = CredentialOptions(**credentials)
    ctx.obj = given.tls(), given.sasl()


_VERSION: Final = typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
_BOOTSTRAP: Final = typer.Option("--bootstrap", "-b", help=BOOTSTRAP_HELP, show_default=False)
app.callback()(
    with_options(
        _options,
        [
            parameter("ctx", typer.Context),
            parameter("version", Annotated[bool, _VERSION], default=False),
            parameter("bootstrap", Annotated[str | None, _BOOTSTRAP], None),
            *options_of(CredentialOptions),
        ],
    )
)
app.command("up")(up)
app.add_typer(topic_commands.app, name="topic")
app.add_typer(partition_commands.app, name="partition")
app.add_typer(node_commands.app, name="node")
cluster_command(app, "produce")(record_commands.produce)
cluster_command(app, "consume")(record_commands.consume)
app.add_typer(group_commands.app, name="group")
app.add_typer(acl_commands.app, name="acl")
app.add_typer(cluster_commands.app, name="cluster")
app.add_typer(quorum_commands.app, name="quorum")
app.add_typer(quota_commands.app, name="quota")
app.add_typer(transaction_commands.app, name="txn")
app.add_typer(log_commands.app, name="log")
app.add_typer(user_commands.app, name="user")
app.add_typer(certs_commands.app, name="certs")
app.add_typer(spark_commands.app, name="spark")
app.add_typer(job_commands.app, name="job")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every error is one sentence on standard error. Returns the exit code."""
    return run_command(app, arguments, "tidelog")
