"""`tidelog log`: log files on this machine, with or without a running node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import click

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.cli.output import Json
from tidelog.cli.server_packages import server_module

app = CommandGroup()


def dump(
    paths: Annotated[list[Path], Argument(help="A file, a partition directory or a log directory.")],
    records: Annotated[bool, Option("--records", help="Show every record too.")] = False,
    findings: Annotated[bool, Option("--findings", help="Show only findings and totals.")] = False,
    as_json: Json = False,
) -> None:
    """Show and verify log files of Tidelog and Apache Kafka, read-only.

    Exit code 0: no damage; or the reader of standard output closed the pipe, and the rest was not checked. 1: damage
    was found. 2: a path does not exist.
    """
    if records and findings:
        raise WrongUsage("--records and --findings exclude each other: choose one")
    show, walk = server_module("storage.dump.show"), server_module("storage.dump.walk")
    try:
        damage = show.show(map(str, paths), sys.stdout.write, records=records, brief=findings, as_json=as_json)
    except walk.NotFound as error:
        raise WrongUsage(str(error)) from None
    raise click.exceptions.Exit(1 if damage else 0)


app.add("dump", dump)
