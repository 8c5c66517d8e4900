"""`tidelog node safe-to-restart`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from tidelog.cli.output import DEFAULT_BOOTSTRAP, PATIENCE_MS, Bootstrap, Json, print_json, say
from tidelog.client.admin import Admin, RestartExplanation

app = typer.Typer(help="Single nodes.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Single nodes."""


@app.command("safe-to-restart")
def safe_to_restart(
    node_id: Annotated[int, typer.Argument(help="The node's number.", show_default=False)],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Report whether the cluster keeps working while a node is stopped. Exit code 1: it does not."""

    async def work() -> RestartExplanation:
        async with Admin(bootstrap, patience_ms=PATIENCE_MS) as admin:
            return await admin.explain_restart(node_id)

    told = asyncio.run(work())
    if as_json:
        print_json(told)
    elif told.safe:
        say(f"node {node_id} may be stopped: the rest of the cluster keeps working")
    else:
        for reason in told.reasons:
            say(f"not now: {reason}")
    if not told.safe:
        raise typer.Exit(1)
