"""Steps of a story that types what documents say to type, at what a wheel installs.

Not here: the stories (test_documents_from_wheel.py, test_spark_documents_from_wheel.py).
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sysconfig
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from tests.document_commands import ROOT, programs_of_shell, python_blocks, sentence_commands, tidelog_commands
from tests.wheels import completed, environment_of_a_user, install_alone, run

STARTS = "starts the cluster of this test, in a directory of its own and on free ports"
SECURED = "needs a cluster with TLS: test_security_walkthrough.py runs those of security.md"
NAMED = "names the command; the same page or another one has it with its arguments"
"""Reasons why something is not run."""

VALUES = {
    "TOPIC": "orders",
    "NAME": "orders",
    "TOPIC-N": "orders-0",
    "GROUP": "billing",
    "ID": "billing-1",
    "FILE": "lines",
    "SEPARATOR": "=",
    "STATE": "Ongoing",
    "RE2": "bill.*",
    "TIME": "2026-01-31T12:00:00Z",
    "PT1H": "PT1H",
    "N": "1",
    "User:NAME": "User:alice",
    "OPERATION": "read",
    "ADDRESS": "127.0.0.1",
    "KEY=LIMIT": "producer_byte_rate=1000000",
    "KEY": "producer_byte_rate",
    "U": "alice",
    "C": "nightly",
    "PATH": "here/node-0/data",
    "DIRECTORY": "here/node-0/data",
    "1,2,4": "1,2,0",
}
"""Words of the documents that stand for something, and what."""


class Command(NamedTuple):
    """A `tidelog` command as the documents have it, without `tidelog`; or one that begins with `python`."""

    words: str
    values: Mapping[str, str] = {}
    more: str = ""
    """Further arguments."""
    code: int = 0
    says: str = ""
    stopped_by: str = ""
    """A pattern of file names: SIGTERM ends the command once there is such a file."""


class Python(NamedTuple):
    """A piece of Python of the documents, by its page and its heading."""

    page: str
    heading: str
    before: str = ""
    """What the document presupposes."""
    behind: str = ""
    """Goes on where the piece ends, at the indentation of its last line."""
    values: Mapping[str, str] = {}
    says: str = ""


class Presupposed(NamedTuple):
    """Python that brings about what the next steps are about."""

    body: str
    says: str


class Cell(NamedTuple):
    """A piece of Python, or of SQL for Spark, by its heading. before, behind: further lines."""

    heading: str
    before: str = ""
    behind: str = ""
    sql: bool = False


class Notebook(NamedTuple):
    """Pieces of one page that build on each other, in one program."""

    page: str
    cells: tuple[Cell, ...]
    says: str


Step = Command | Python | Presupposed | Notebook

STOPPED_WITHIN_S, POLL_S = 300, 0.2
RUNS_MAX = 20
"""Of Python that ends when nothing has come for a second: joining a group may take longer on a busy machine."""


def written(documents: Iterable[str]) -> set[str]:
    """All commands and pieces of Python of the documents."""
    found = set()
    for page in documents:
        text = text_of(page)
        found |= {" ".join(words) for words in (*tidelog_commands(text), *sentence_commands(text))}
        found |= set(programs_of_shell(text))
        found |= {f"{page}: {heading}" for heading in python_blocks(text)}
        found |= {f"{page}: SQL of {heading}" for heading in python_blocks(text, "sql")}
    return found


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def names_of(step: Step) -> list[str]:
    """What the step runs, as `written` names it."""
    match step:
        case Presupposed():
            return []
        case Command():
            return [step.words]
        case Python():
            return [f"{step.page}: {step.heading}"]
        case Notebook():
            return [f"{step.page}: {'SQL of ' * cell.sql}{cell.heading}" for cell in step.cells]


class Installed(NamedTuple):
    """A wheel in an environment of its own, and a cluster that its `tidelog up` started."""

    python: Path
    directory: Path
    bootstrap: str = ""

    def says_of(self, *command: str | Path) -> tuple[int, str]:
        done = completed(*command, cwd=self.directory, **self.environment())
        return done.returncode, done.stdout + done.stderr

    def environment(self) -> dict[str, str]:
        """By PYTHONPATH come the dependencies, which another installation has: no checkout, whose .pth is not read. The
        other two variables give Spark the Python of the wheel."""
        python = str(self.python)
        return {
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "TIDELOG_BOOTSTRAP": self.bootstrap,
        }

    def does(self, step: Command) -> tuple[int, str]:
        values = {**VALUES, "localhost:9192": self.bootstrap, **step.values}
        words = [values.get(word, word) for word in [*step.words.split(), *step.more.split()]]
        if words[0] == "python":
            return self.says_of(self.python, *words[1:])
        command: list[str | Path] = [self.python.parent / "tidelog", *words]
        return self.stopped(command, step.stopped_by) if step.stopped_by else self.says_of(*command)

    def stopped(self, command: list[str | Path], pattern: str) -> tuple[int, str]:
        """A command that goes on until it is told to stop."""
        with (self.directory / "said").open("w") as said:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=environment_of_a_user(**self.environment()),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
            end = monotonic() + STOPPED_WITHIN_S
            while monotonic() < end and not any(self.directory.glob(pattern)):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
                    break
            process.terminate()
            code = process.wait(STOPPED_WITHIN_S)
        return code, (self.directory / "said").read_text()

    def program(self, text: str) -> tuple[int, str]:
        return self.says_of(self.python, "-c", re.sub(r"(?<=[\"'])(local)?host:9192[^\"']*", self.bootstrap, text))


def program_of(step: Python | Presupposed | Notebook) -> str:
    """A piece of Python within a program that ends where the test has seen enough."""
    if isinstance(step, Presupposed):
        return within_main(step.body)
    if isinstance(step, Notebook):
        return "\n".join(
            lines for cell in step.cells for lines in (cell.before, lines_of(step.page, cell), cell.behind)
        )
    body = python_blocks(text_of(step.page))[step.heading]
    for word, value in step.values.items():
        body = body.replace(word, value)
    last = body.rstrip().splitlines()[-1]
    body += textwrap.indent(step.behind, last[: len(last) - len(last.lstrip())])
    return body if "asyncio.run(" in body else within_main(f"{step.before}\n{body}")


def lines_of(page: str, cell: Cell) -> str:
    """A cell as Python."""
    body = python_blocks(text_of(page), "sql" if cell.sql else "python")[cell.heading]
    if not cell.sql:
        return body
    statements = re.sub(r"--.*", "", body).split(";")
    return "\n".join(f"spark.sql({each.strip()!r}).show()" for each in statements if each.strip())


def within_main(body: str) -> str:
    return f"""import asyncio, os, tidelog
class EndOfTest(Exception): pass
async def main():
{textwrap.indent(body, "    ")}
try: asyncio.run(main())
except EndOfTest: pass
"""


def install(wheel: Path, directory: Path) -> Installed:
    """The wheel, installed below the directory, where the documents' files are as well."""
    installed = Installed(install_alone(wheel, directory / "venv"), directory)
    where = run(installed.python, "-c", "import tidelog; print(tidelog.__file__)", cwd=directory)
    assert Path(where).is_relative_to(directory / "venv")
    (directory / "lines").write_text("".join(f"{number}=payment {number}\n" for number in range(60)))
    return installed


@contextmanager
def up(installed: Installed) -> Iterator[Installed]:
    """The cluster, on free ports, until the block ends."""
    process = subprocess.Popen(
        [installed.python.parent / "tidelog", "up", "--nodes", "3", "--data", "here", "--port", "0", "--json"],
        cwd=installed.directory,
        env=environment_of_a_user(**installed.environment()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=(installed.directory / "up.log").open("w"),
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready, (installed.directory / "up.log").read_text()
        yield installed._replace(bootstrap=json.loads(ready)["bootstrap"])
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 0, (installed.directory / "up.log").read_text()


def fault_of(step: Step, installed: Installed) -> str | None:
    """What is wrong with a step of the documents; None if it does what it says."""
    wanted = step.code if isinstance(step, Command) else 0
    for _run in range(RUNS_MAX if isinstance(step, Python) else 1):
        code, said = installed.does(step) if isinstance(step, Command) else installed.program(program_of(step))
        if code != wanted or "Traceback" in said:
            break
        if step.says in said:
            return None
    return f"{names_of(step) or step}: exit code {code}, wanted {wanted} and {step.says!r}:\n{said}"
