"""The root command with all subcommands, and its error handling."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

import tidelog
from tidelog.cli import (
    acl_commands as acl,
)
from tidelog.cli import (
    certs_commands as certs,
)
from tidelog.cli import (
    cluster_commands as cluster,
)
from tidelog.cli import (
    group_commands as group,
)
from tidelog.cli import (
    job_commands as job,
)
from tidelog.cli import (
    log_commands as log,
)
from tidelog.cli import (
    node_commands as node,
)
from tidelog.cli import (
    partition_commands as partition,
)
from tidelog.cli import (
    quorum_commands as quorum,
)
from tidelog.cli import (
    quota_commands as quota,
)
from tidelog.cli import (
    record_commands as records,
)
from tidelog.cli import (
    spark_commands as spark,
)
from tidelog.cli import (
    topic_commands as topic,
)
from tidelog.cli import (
    transaction_commands as transaction,
)
from tidelog.cli import (
    up,
)
from tidelog.cli import (
    user_commands as user,
)
from tidelog.cli.interrupts import INTERRUPTED
from tidelog.cli.output import BootstrapBeforeCommand
from tidelog.cli.sasl_options import SaslMechanism, SaslPasswordFile, SaslTokenFile, SaslUsername, choose_sasl
from tidelog.cli.tls_options import TlsCa, TlsCert, TlsKey, choose_tls, tls_option_for
from tidelog.cli.wrong_usage import WrongUsage
from tidelog.errors import TidelogError
from tidelog.standard_streams import ReaderGone, say

app = typer.Typer(
    name="tidelog",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"tidelog {tidelog.__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    bootstrap: BootstrapBeforeCommand = None,
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
    choose_tls(tls_ca, tls_cert, tls_key)
    choose_sasl(sasl_username, sasl_password_file, sasl_mechanism, sasl_token_file)


app.command("up")(up.up)
app.add_typer(topic.app, name="topic")
app.add_typer(partition.app, name="partition")
app.add_typer(node.app, name="node")
app.command("produce")(records.produce)
app.command("consume")(records.consume)
app.add_typer(group.app, name="group")
app.add_typer(acl.app, name="acl")
app.add_typer(cluster.app, name="cluster")
app.add_typer(quorum.app, name="quorum")
app.add_typer(quota.app, name="quota")
app.add_typer(transaction.app, name="txn")
app.add_typer(log.app, name="log")
app.add_typer(user.app, name="user")
app.add_typer(certs.app, name="certs")
app.add_typer(spark.app, name="spark")
app.add_typer(job.app, name="job")


# Typer uses its own click or the installed one, depending on the version; this class is in both.
_WrongCommandLine: Final[Any] = typer.BadParameter.__mro__[2]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every error is one sentence on standard error."""
    try:
        code = _outcome(arguments)
        sys.stdout.flush()
    except ReaderGone:
        return 0
    except OSError as error:
        cause = error.strerror or str(error)
        say(f"tidelog: {cause}: {error.filename}" if error.filename else f"tidelog: {cause}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _outcome(arguments: Sequence[str] | None) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(
            args=None if arguments is None else list(arguments), prog_name="tidelog", standalone_mode=False
        )
    except TidelogError as error:
        say(f"tidelog: {error.message}{tls_option_for(error)}")
        return 1
    except WrongUsage as error:
        say(f"tidelog: {error}")
        return 2
    except _WrongCommandLine as error:
        shown = io.StringIO()
        error.show(shown)
        for line in shown.getvalue().splitlines():
            say(line)
        return int(error.exit_code)
    except typer.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0
