"""What all jobs share: arguments, how they end, progress and results.

Exit codes are those of the `tidelog` command: 0 success, 1 failed with one sentence on standard error (or, for jobs
that check, something found), 2 wrong command line, 130 interrupted, 143 ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, Self

from tidelog.client_variables import ClientVariable
from tidelog.cluster_connection import DEFAULT_BOOTSTRAP, ClusterConnection
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.jobs.job_arguments import WrongArguments, spark_setting
from tidelog.printable import printable
from tidelog.security.sasl_user import Sasl
from tidelog.security.tls_files import Tls
from tidelog.standard_streams import STANDARD_ERROR, ReaderGone, json_line, protect_standard_streams, say

WRONG_COMMAND_LINE: Final = 2
INTERRUPTED: Final = 130
TERMINATED: Final = 143

_RAISED: Final = re.compile(r"\btidelog\.[a-z_.]+\.([A-Z][A-Za-z]+): (.+)")
"""An error of Tidelog in the traceback of a Python process that Spark quotes."""
_TRACED: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(?P<error>[A-Za-z_][\w.]*)(?:: *(?P<message>.*))?$",
    re.MULTILINE,
)
"""The error of any package at the end of such a traceback, and its message, which it need not have."""
_CALLING: Final = "An error occurred while calling"
"""How py4j begins what names only a method; the error of Java is below it, if there is one."""
_STACK: Final = "JVM stacktrace:"
"""What PySpark writes below the message of an error of Java."""
_JAVA: Final = re.compile(
    rf"(?:^(?:Caused by)?: |(?<=Trace:\n)|(?<={_STACK}\n))(?P<error>[\w.$]+)(?:: *(?P<message>.*))?$", re.MULTILINE
)
"""An error of Java and its message, which it need not have."""


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


def job_parser(name: str, description: str, defaults: ClusterConnection | None) -> argparse.ArgumentParser:
    """A parser with the arguments of all jobs. defaults: what was given before the command; None: the environment."""
    parser = argparse.ArgumentParser(
        prog=f"tidelog job {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    environment = os.environ.get
    given = defaults or ClusterConnection(environment(ClientVariable.BOOTSTRAP, DEFAULT_BOOTSTRAP))
    group = parser.add_argument_group("cluster")
    group.add_argument("-b", "--bootstrap", default=given.bootstrap, help="host:port of some nodes, with commas")
    group.add_argument("--client-id", default=f"tidelog-{name}", help="in quotas and in logs of nodes")
    for variable in (
        ClientVariable.TLS_CA,
        ClientVariable.TLS_CERT,
        ClientVariable.TLS_KEY,
        ClientVariable.SASL_USERNAME,
        ClientVariable.SASL_PASSWORD_FILE,
        ClientVariable.SASL_MECHANISM,
        ClientVariable.SASL_TOKEN_FILE,
    ):
        option = "--" + variable.removeprefix("TIDELOG_").lower().replace("_", "-")
        default = environment(variable) if defaults is None else None
        group.add_argument(option, default=default, help=argparse.SUPPRESS if defaults else f"as {variable}")
    parser.add_argument("--json", action="store_true", dest="as_json", help="the report as JSON on standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    parser.set_defaults(connection_defaults=given)
    return parser


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of jobs that run on Spark."""
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", help="for example local[4] or spark://host:7077; default: Spark's own")
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        type=spark_setting,
        metavar="NAME=VALUE",
        help="a setting of Spark; can be repeated",
    )


def connection_of(arguments: argparse.Namespace) -> ClusterConnection:
    """The cluster that the arguments name. Raises InvalidConfig."""
    given: ClusterConnection = arguments.connection_defaults
    tls, sasl = given.tls, given.sasl
    if arguments.tls_ca or arguments.tls_cert or arguments.tls_key:
        tls = Tls(arguments.tls_ca, arguments.tls_cert, arguments.tls_key)
    if arguments.sasl_username or arguments.sasl_token_file:
        sasl = Sasl(
            arguments.sasl_username or "",
            password_file=arguments.sasl_password_file,
            mechanism=arguments.sasl_mechanism or "",
            token_file=arguments.sasl_token_file,
        )
    return ClusterConnection(arguments.bootstrap, tls, sasl, arguments.client_id)


# --- results ------------------------------------------------------------------------------------------------------


def plain(value: object) -> Any:
    """Convert a value for JSON: records to objects, whatever JSON has not to text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


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
        """answer: what is printed at the first signal, where the end takes some time."""
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
        """Raise what the signal means to a job that has not finished: KeyboardInterrupt, JobTerminated."""
        if self._signal is not None:
            _raise_signal(self._signal)


def _raise_signal(number: int, frame: FrameType | None = None) -> NoReturn:  # noqa: ARG001 - the signature of handlers
    raise JobTerminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """SIGTERM raises JobTerminated, so that what is open is closed. Only the main thread can have it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _raise_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)


def run_job(
    parser: argparse.ArgumentParser,
    work: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None,
    *,
    when_interrupted: str,
) -> int:
    """Parse the arguments, do the work and return its exit code; every error is one sentence on standard error.

    when_interrupted: what is kept of a job that is interrupted, and what the same command does then.
    """
    protect_standard_streams()
    try:
        parsed = parser.parse_args(arguments)
    except ReaderGone:  # of --help
        return 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else WRONG_COMMAND_LINE
    name = parser.prog
    try:
        with _sigterm_raises():
            return work(parsed)
    except KeyboardInterrupt as signalled:
        is_sigterm = isinstance(signalled, JobTerminated)
        say(f"{name}: {'ended by SIGTERM' if is_sigterm else 'interrupted'}: {when_interrupted}")
        return TERMINATED if is_sigterm else INTERRUPTED
    except WrongArguments as wrong:
        say(f"{name}: error: {wrong}")
        return WRONG_COMMAND_LINE
    except ReaderGone:
        return 0
    except TidelogError as error:
        say(f"{name}: {error.message}")
    except OSError as error:
        say(f"{name}: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
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
