"""`tidelog node run|probe|safe-to-restart|cordon|uncordon|drain|remove`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall, cluster_command
from tidelog.cli.cluster_options import CONNECTION, connection_options, profile_defaults
from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.cli.drain_command import drain
from tidelog.cli.output import Json, print_json
from tidelog.cli.server_packages import server_module
from tidelog.errors import TidelogError
from tidelog.standard_streams import say

app = CommandGroup()


def run(
    config: Annotated[Path, Option("--config", "-c", help="Configuration of the node (TOML).")],
    until_stdin_ends: Annotated[bool, Option("--until-stdin-ends", help="Stop when standard input ends too.")] = False,
) -> None:
    """Run one node until SIGTERM or Ctrl-C: the same as `tidelog-node --config FILE`."""
    process: Any = server_module("node.process.process")
    code: int = process.main(["--config", str(config), *["--until-stdin-ends"] * until_stdin_ends])
    raise click.exceptions.Exit(code)


def probe(
    ctx: click.Context,
    address: Annotated[str, Argument(help="HOST:PORT of a listener of the node that speaks gRPC.")],
    ready: Annotated[bool, Option("--ready", help="Whether the node is ready, not only alive.")] = False,
    caught_up: Annotated[
        bool, Option("--caught-up", help="Whether it is ready and its replicas have been in sync since it started.")
    ] = False,
    timeout_ms: Annotated[int, Option("--timeout-ms", min=1, help="Timeout of the check.")] = 2_000,
    as_json: Json = False,
) -> None:
    """Check whether a node is alive or ready: the same as `tidelog-probe ADDRESS`. Exit code 1: it is not."""
    if ready and caught_up:
        raise WrongUsage("pass --ready or --caught-up, not both")
    module: Any = server_module("node.process.probe")
    service, wanted = module.wanted_service(ready=ready, caught_up=caught_up)
    reason = ""
    try:
        is_healthy: bool = module.ask(address, service, timeout_ms, connection_options(ctx).tls())
    except TidelogError as error:
        is_healthy, reason = False, error.message
    if as_json:
        print_json({"address": address, wanted.replace(" ", "_"): is_healthy, "reason": reason})
    else:
        say(reason or module.verdict(address, wanted, is_healthy=is_healthy))
    if not is_healthy:
        raise click.exceptions.Exit(1)


app.add("run", run)
app.add("probe", probe, more=CONNECTION, defaults=profile_defaults)


@cluster_command(app, "safe-to-restart")
def safe_to_restart(call: CommandCall, node_id: Annotated[int, Argument(help="The node's number.")]) -> None:
    """Report whether the cluster keeps working while a node is stopped. Exit code 1: it does not."""
    restart = call.query(lambda admin: admin.explain_restart(node_id))
    if call.as_json:
        print_json(restart)
    elif restart.safe:
        say(f"node {node_id} may be stopped: the rest of the cluster keeps working")
    else:
        for reason in restart.reasons:
            say(f"not now: {reason}")
    if not restart.safe:
        raise click.exceptions.Exit(1)


LogDirs = Annotated[
    list[str] | None,
    Option(
        "--log-dir",
        help="Only this log directory of it, by its path, or the id that `tidelog log-dirs` shows; repeatable.",
    ),
]


@cluster_command(app)
def cordon(
    call: CommandCall, node_id: Annotated[int, Argument(help="The node's number.")], log_dir: LogDirs = None
) -> None:
    """Place no new replicas on a node, or in some of its log directories; those that it has stay. It holds until
    `tidelog node uncordon`, also over restarts."""
    changed = call.query(lambda admin: admin.cordon_node(node_id, log_dirs=log_dir or ()))
    already = "" if changed else " already"
    document = {"cordoned_node": node_id, "log_dirs": log_dir or [], "changed": changed}
    call.report(document, f"{_named(node_id, log_dir)} {_is(log_dir)} cordoned{already}")


@cluster_command(app)
def uncordon(
    call: CommandCall, node_id: Annotated[int, Argument(help="The node's number.")], log_dir: LogDirs = None
) -> None:
    """Let a node get new replicas again, or some of its log directories. None are moved to it: `tidelog cluster
    rebalance` does that."""
    changed = call.query(lambda admin: admin.uncordon_node(node_id, log_dirs=log_dir or ()))
    named, was = _named(node_id, log_dir), "were" if len(log_dir or ()) > 1 else "was"
    done = f"{named} may get new replicas again" if changed else f"{named} {was} not cordoned"
    call.report({"uncordoned_node": node_id, "log_dirs": log_dir or [], "changed": changed}, done)


def _named(node_id: int, log_dirs: list[str] | None) -> str:
    return f"{', '.join(log_dirs)} of node {node_id}" if log_dirs else f"node {node_id}"


def _is(log_dirs: list[str] | None) -> str:
    return "are" if len(log_dirs or ()) > 1 else "is"


cluster_command(app)(drain)


@cluster_command(app)
def remove(call: CommandCall, node_id: Annotated[int, Argument(help="The node's number.")]) -> None:
    """Remove a node that is gone for good, with its vote in the metadata quorum. Refused while it runs or has
    replicas."""
    removed_voter = call.query(lambda admin: admin.unregister_node(node_id))
    call.report(
        {"removed_node": node_id, "removed_voter": removed_voter},
        f"node {node_id} is no longer part of the cluster",
        *["it was a voter of the metadata quorum; another node takes its place"] * removed_voter,
    )
