"""Runs a command line: the one place where an error becomes a sentence and an exit code, for commands and jobs."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import click

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_options import option_for
from tidelog.cli.interrupts import INTERRUPTED, TERMINATED, Terminated
from tidelog.errors import TidelogError
from tidelog.standard_streams import ReaderGone, say


def run_command(
    command: click.Command, arguments: Sequence[str] | None, name: str, *, parent: click.Context | None = None
) -> int:
    """Run one command; every error is one sentence on standard error. Returns the exit code.

    arguments: None for those of the process. parent: the context of the command within which this one runs.
    """
    path = name if parent is None else f"{parent.command_path} {name}"
    try:
        code = _outcome(command, arguments, name, path, parent)
        sys.stdout.flush()
    except ReaderGone:  # `tidelog ... | head` is no failure
        return 0
    except OSError as error:
        cause = error.strerror or str(error)
        say(f"{path}: {cause}: {error.filename}" if error.filename else f"{path}: {cause}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    return code


def _outcome(
    command: click.Command, arguments: Sequence[str] | None, name: str, path: str, parent: click.Context | None
) -> int:
    args = None if arguments is None else list(arguments)
    try:  # not standalone: click would print errors in its own way and end the process
        code = command.main(args=args, prog_name=name, standalone_mode=False, parent=parent)
    except TidelogError as error:
        say(f"{path}: {error.message}{option_for(error)}")
        return 1
    except WrongUsage as error:
        say(f"{path}: {error}")
        return 2
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        for line in shown.getvalue().splitlines():
            say(line)
        return int(error.exit_code)
    except click.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0
