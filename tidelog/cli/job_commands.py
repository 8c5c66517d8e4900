"""`tidelog job`: jobs on whole topics. A job is also a program and parses its own arguments, so its module is imported
only when it is run."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

from tidelog.cli.declared import CommandGroup

JOBS: Final = {
    "archive": "Write topics to Parquet, Delta or Iceberg, exactly once; or verify an archive.",
    "restore": "Write an archive back into a topic.",
    "table": "Keep an Iceberg table of a topic up to date, exactly once.",
    "audit": "Compare the replicas of each partition, and check durability receipts.",
    "profile": "Describe topics: sizes, keys, rates, holes, delays, compression.",
}
"""The modules of tidelog/jobs that are commands, with their descriptions."""

MODULES: Final = {"table": "topic_table"}
"""Modules that have another name than their command."""

app = CommandGroup()


def _add(name: str, what: str) -> None:
    def run(ctx: click.Context) -> None:
        module: Any = import_module(f"tidelog.jobs.{MODULES.get(name, name)}")
        code = module.main(ctx.args, ctx.parent)
        if code:
            raise click.exceptions.Exit(code)

    app.add(
        name,
        run,
        what,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )


for _name, _what in JOBS.items():
    _add(_name, _what)
