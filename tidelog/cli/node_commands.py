"""`tidelog node safe-to-restart`."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.cluster_command import CommandCall, cluster_command
from tidelog.cli.output import print_json
from tidelog.standard_streams import say

app = typer.Typer(help="Single nodes.", no_args_is_help=True)


@cluster_command(app, "safe-to-restart")
def safe_to_restart(
    call: CommandCall, node_id: Annotated[int, typer.Argument(help="The node's number.", show_default=False)]
) -> None:
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
        raise typer.Exit(1)
