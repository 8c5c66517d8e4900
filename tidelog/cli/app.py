"""The root command: a table of all commands, whose modules are imported when they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

import tidelog
from tidelog.cli.cluster_options import CONNECTION
from tidelog.cli.command_line import run_command
from tidelog.cli.declared import CommandGroup, parameter, parameter_of
from tidelog.cli.output import Json

COMMANDS: Final = {
    "up": ("up:command", "Start nodes on this machine, until Ctrl-C."),
    "topic": ("topic_commands:app", "Create, list, describe, alter and delete topics, and delete records."),
    "config": ("config_commands:app", "Settings of topics and nodes: values, sources, changes."),
    "apply": ("apply_command:command", "Topics, users, ACLs and quotas as files say."),
    "partition": ("partition_commands:app", "Single partitions: problems, leaders, replicas."),
    "node": ("node_commands:app", "Single nodes: run one, probe one, may one stop?"),
    "log-dirs": ("log_dir_commands:command", "Log directories of nodes: disks and sizes of logs."),
    "produce": ("produce_command:command", "Write records: lines, or JSON as `consume --json` prints it."),
    "consume": ("consume_command:command", "Print records."),
    "bench": ("bench_commands:app", "Measure this cluster: produce, consume, latency."),
    "group": ("group_commands:app", "Consumer groups: members, committed offsets, lag."),
    "acl": ("acl_commands:app", "Who may do what: add, list, remove and test ACLs."),
    "cluster": ("cluster_commands:app", "The state of the cluster."),
    "top": ("top_command:command", "Nodes, rates of topics and lag of groups, live."),
    "quorum": ("quorum_commands:app", "The metadata quorum, offline."),
    "quota": ("quota_commands:app", "Quotas of users and client ids: byte rates, request time, changes of topics."),
    "txn": ("transaction_commands:app", "Transactions: open, hanging, and how to end them."),
    "snapshot": ("topic_snapshot_commands:app", "Snapshots of topics: a frozen, consistent end of several topics."),
    "tier": ("tier_commands:app", "The remote tier: segments of topics in the object store."),
    "log": ("log_commands:app", "Log files on this machine."),
    "user": ("user_commands:app", "Users that authenticate by SCRAM."),
    "certs": ("certs_commands:app", "Certificates for tests and small installations."),
    "spark": ("spark_commands:app", "The Spark source and sink."),
    "job": ("job_commands:app", "Jobs on whole topics, most of them on Spark."),
}
"""The commands: where each is, and what it does."""


def _print_version(ctx: click.Context, _param: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        click.echo(f"tidelog {tidelog.__version__}")
        ctx.exit()


def _root() -> CommandGroup:
    version = click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="Print the version.",
    )
    shared = [parameter("as_json", Json, default=False), *CONNECTION]
    root = CommandGroup(
        "Tidelog: a replicated log. Commands use the nodes in --bootstrap or TIDELOG_BOOTSTRAP. Global options may "
        "stand before the command or after it.",
        params=[version, *map(parameter_of, shared)],
    )
    for name, (place, what) in COMMANDS.items():
        root.add_lazy(name, f"tidelog.cli.{place}", what)
    return root


app: Final = _root()


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every error is one sentence on standard error. Returns the exit code."""
    return run_command(app, arguments, "tidelog")
