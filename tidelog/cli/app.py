"""The root command with all subcommands, and its error handling."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

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
from tidelog.cli.cluster_command import cluster_command
from tidelog.cli.cluster_options import (
    BOOTSTRAP_HELP,
    SaslMechanism,
    SaslPasswordFile,
    SaslTokenFile,
    SaslUsername,
    TlsCa,
    TlsCert,
    TlsKey,
    sasl_of,
    tls_of,
)
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


@app.callback()
def _options(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    bootstrap: Annotated[str | None, typer.Option("--bootstrap", "-b", help=BOOTSTRAP_HELP, show_default=False)] = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    sasl_username: SaslUsername = None,
    sasl_password_file: SaslPasswordFile = None,
    sasl_mechanism: SaslMechanism = "",
    sasl_token_file: SaslTokenFile = None,
) -> None:
    """Tidelog: a replicated log. Commands use the nodes in --bootstrap or TIDELOG_BOOTSTRAP."""
    del version, bootstrap  # handled by their callbacks
    ctx.obj = (
        tls_of(tls_ca, tls_cert, tls_key),
        sasl_of(sasl_username, sasl_password_file, sasl_mechanism, sasl_token_file),
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
