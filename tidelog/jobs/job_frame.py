"""What all jobs share: arguments, how they end, progress and results.

Exit codes are those of the `tidelog` command: 0 success, 1 failed with one sentence on standard error (or, for jobs
that check, something found), 2 wrong command line, 130 interrupted, 143 ended by SIGTERM.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, Generic, NoReturn, Self, TypeAlias, TypeVar

import click

from tidelog.cli.cluster_options import CONNECTION, connection_of, profile_defaults
from tidelog.cli.command_line import run_command
from tidelog.cli.declared import Option, declared_command, options_of, parameter, with_options
from tidelog.cli.interrupts import INTERRUPTED
from tidelog.cli.output import plain
from tidelog.client_variables import ClientVariable
from tidelog.cluster_connection import ClusterConnection
from tidelog.errors import InvalidConfig
from tidelog.jobs.job_arguments import SparkSetting, spark_setting, store_place
from tidelog.printable import printable
from tidelog.standard_streams import STANDARD_ERROR, json_line, protect_standard_streams, say

TERMINATED: Final = 143

_RAISED: Final = re.compile(r"\btidelog\.[a-z_.]+\.([A-Z][A-Za-z]+): (.+)")
"""An error of Tidelog in the traceback of a Python process that Spark quotes."""
_TRACED: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(?P<error>[A-Za-z_][\w.]*)(?:: *(?P<message>.*))?$",
    re.MULTILINE,
)
"""The error of any package at the end of such a traceback, and its message (optional)."""
_CALLING: Final = "An error occurred while calling"
"""How py4j begins what names only a method; the error of Java is below it, if there is one."""
_STACK: Final = "JVM stacktrace:"
"""What PySpark writes below the message of an error of Java."""
_JAVA: Final = re.compile(
    rf"(?:^(?:Caused by)?: |(?<=Trace:\n)|(?<={_STACK}\n))(?P<error>[\w.$]+)(?:: *(?P<message>.*))?$", re.MULTILINE
)
"""An error of Java and its message (optional)."""


def spark_options(connection: ClusterConnection) -> dict[str, str]:
    """The connection as options of the Spark source and sink. Files have the same paths on the driver and on executors.
    Raises InvalidConfig for a password that is in no file."""
    tls, sasl = connection.tls, connection.sasl
    options = {"tidelog.bootstrap.servers": connection.bootstrap, "tidelog.client.id": connection.client_id}
    if tls is not None:
        options |= {
            "tidelog.security.protocol": "SSL" if sasl is None else "SASL_SSL",
            "tidelog.ssl.ca.file": str(tls.ca or ""),
            "tidelog.ssl.certificate.file": str(tls.certificate or ""),
            "tidelog.ssl.key.file": str(tls.key or ""),
        }
    if sasl is not None:
        # Spark shows options in plans and logs, so that none can have the password itself.
        if not sasl.is_token and sasl.password_file is None:
            raise InvalidConfig(
                "tasks of Spark read the password from a file: name one with --sasl-password-file "
                f"({ClientVariable.SASL_PASSWORD_FILE})"
            )
        options |= {
            "tidelog.sasl.mechanism": sasl.mechanism,
            "tidelog.sasl.username": sasl.username,
            "tidelog.sasl.password.file": sasl.password_file or "",
            "tidelog.sasl.token.file": sasl.token_file or "",
        }
    return {name: value for name, value in options.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobArguments:
    """What every job is given. Fields with an option or an argument are those of the command, also those of a
    subclass for one job."""

    connection: ClusterConnection
    as_json: Annotated[bool, Option("--json", help="The report as JSON on standard output.", is_global=True)] = False
    quiet: Annotated[bool, Option("--quiet", help="No progress on standard error.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJobArguments(JobArguments):
    """Arguments of jobs that run on Spark."""

    master: Annotated[
        str | None, Option("--master", help="For example local[4] or spark://host:7077; default: Spark's own.")
    ] = None
    conf: Annotated[
        list[SparkSetting],
        Option("--conf", parser=spark_setting, metavar="NAME=VALUE", help="A setting of Spark; can be repeated."),
    ] = field(default_factory=list)


RemoteStorage: TypeAlias = Annotated[
    str,
    Option(
        "--remote-storage",
        parser=store_place,
        metavar="on|off|URL",
        help="Read history of topics with a remote tier from the object store, past the nodes.",
    ),
]
"""The argument of jobs that read topics."""


_CLIENT_ID: Final = Option("--client-id", help="In quotas and in logs of nodes.")


# --- results ------------------------------------------------------------------------------------------------------


def print_report(document: object, lines: Sequence[str], *, as_json: bool) -> None:
    """Print the report of a job: one JSON document, or lines for people."""
    sys.stdout.write(json_line(plain(document)) if as_json else "".join(f"{printable(line)}\n" for line in lines))
    sys.stdout.flush()


# --- how a job runs and ends --------------------------------------------------------------------------------------


class JobTerminated(KeyboardInterrupt):
    """The process received SIGTERM."""


class StopRequest:
    """Whether the job was asked to end: by SIGINT or SIGTERM. A second signal raises at once."""

    def __init__(self, answer: str = "") -> None:
        """answer: the text to print at the first signal, for a job that takes some time to end."""
        self._answer = answer
        self._signal: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of handlers
        if self._signal is not None:
            _raise_signal(number)
        self._signal = number
        if self._answer:
            with suppress(OSError):  # nobody reads it
                os.write(STANDARD_ERROR, f"{self._answer}\n".encode())  # not through a buffer that may be in use

    @property
    def is_asked(self) -> bool:
        """Whether the job should end now."""
        return self._signal is not None

    def raise_if_asked(self) -> None:
        """Raise the exception for a signal before the end of the job: KeyboardInterrupt, JobTerminated."""
        if self._signal is not None:
            _raise_signal(self._signal)


def _raise_signal(number: int, frame: FrameType | None = None) -> NoReturn:  # noqa: ARG001 - the signature of handlers
    raise JobTerminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Let SIGTERM raise JobTerminated, so that open resources are closed. Only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _raise_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)


Arguments = TypeVar("Arguments", bound=JobArguments)


@dataclass(frozen=True, slots=True)
class Job(Generic[Arguments]):
    """A job: a command `tidelog job NAME`, and a program."""

    name: str
    description: str
    arguments: type[Arguments]
    work: Callable[[Arguments], int]
    """Returns the exit code."""
    when_interrupted: str
    """The sentence for an interrupted job: its results so far, and the effect of repeating the command."""

    def main(self, arguments: Sequence[str] | None = None, parent: click.Context | None = None) -> int:
        """Run the job. arguments: None for those of the process. parent: `tidelog job`, if it runs there. Returns the
        exit code; every error is one sentence on standard error."""
        protect_standard_streams()
        name = self.name if parent else f"tidelog job {self.name}"
        return run_command(self.command(), arguments, name, parent=parent)

    def command(self) -> click.Command:
        """The command line of the job."""
        # Without the mark of click, examples would be filled as a paragraph.
        what = re.sub(r"\n\n(?= )", "\n\n\b\n", self.description)
        return declared_command(self._declared(), self.name, what, more=CONNECTION, defaults=profile_defaults)

    def _declared(self) -> Callable[..., None]:
        """The command with the options of the arguments."""
        options = options_of(self.arguments)

        def run(ctx: click.Context, client_id: str, **given: Any) -> None:
            connection = connection_of(ctx, client_id or f"tidelog-{self.name}")
            raise click.exceptions.Exit(self._ended(self.arguments(connection=connection, **given)))

        client_id = parameter("client_id", Annotated[str, _CLIENT_ID], "")
        return with_options(run, [parameter("ctx", click.Context), *options, client_id])

    def _ended(self, arguments: Arguments) -> int:
        """Do the work: what only a job raises becomes a sentence here, all else in `run_command`."""
        name = f"tidelog job {self.name}"
        try:
            with _sigterm_raises():
                return self.work(arguments)
        except KeyboardInterrupt as signalled:
            is_sigterm = isinstance(signalled, JobTerminated)
            say(f"{name}: {'ended by SIGTERM' if is_sigterm else 'interrupted'}: {self.when_interrupted}")
            return TERMINATED if is_sigterm else INTERRUPTED
        except (BrokenPipeError, EOFError) as error:  # click would end in silence, or as if interrupted
            say(f"{name}: the connection to Spark's JVM ended ({type(error).__name__}): look into Spark's log")
            return 1
        except Exception as error:
            if not is_of_spark(error):
                raise
            say(f"{name}: {sentence_of(error)}")
            return 1


def is_of_spark(error: BaseException) -> bool:
    """Whether Spark, or the bridge to its JVM, raised the error."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def sentence_of(error: BaseException) -> str:
    """The cause that an error of Spark quotes: an error of Tidelog, else the last error of a Python process, else the
    first and the last error of Java, or else its first line."""
    text = getattr(error, "errmsg", "")
    with suppress(Exception):  # py4j asks the JVM for the whole text
        text = str(error)
    if raised := _RAISED.findall(text):
        return str(raised[-1][1])
    if traced := list(_TRACED.finditer(text)):
        name, message = traced[-1]["error"].rpartition(".")[2], (traced[-1]["message"] or "").strip()
        return f"{name}: {message}" if message else name
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    if not first.startswith((_CALLING, _STACK)):
        return first
    causes = [_words_of(found["error"], (found["message"] or "").strip()) for found in _JAVA.finditer(text)]
    if not causes:
        return f"{first.rstrip('.')}: the JVM of Spark does not answer; if it has ended, the system's log may say why"
    return "; ".join(dict.fromkeys((causes[0], causes[-1])))


def _words_of(error: str, message: str) -> str:
    """An error of Java in words. The messages of Java's own errors often only name a class or a file."""
    name = error.rpartition(".")[2]
    if not message:
        return name
    return f"{name}: {message}" if error.startswith("java.") else message


def run_as_program(main: Callable[[], int], file: str) -> int:
    """Run a job whose file is the program. Its directory is taken from the path of modules: the jobs have names that
    modules of Python have as well (`profile`)."""
    here = str(Path(file).resolve().parent)
    sys.path[:] = [place for place in sys.path if str(Path(place or ".").resolve()) != here]
    return main()
