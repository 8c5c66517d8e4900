"""What the README and the documents of the client, groups, transactions and operations say to type works from the
wheel alone: the commands of their blocks and sentences and their Python, against `tidelog up` of the same wheel.

`STORY` is their order, with values for the words that stand for one; `NOT_RUN` says why the others are left out.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.document_commands import ROOT, python_blocks, sentence_commands, tidelog_commands
from tests.wheels import build_wheel, completed, environment_of_a_user, install_alone, run

pytestmark = pytest.mark.integration

DOCUMENTS = ("README.md", "docs/client.md", "docs/groups.md", "docs/transactions.md", "docs/operations.md")

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
    """A `tidelog` command as the documents have it, without `tidelog`."""

    words: str
    values: Mapping[str, str] = {}
    more: str = ""
    """Further arguments."""
    code: int = 0
    says: str = ""


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


ACL_NAMES = ("AclBinding", "AclFilter", "AclOperation", "AclPermission", "PatternType", "ResourceType")


class Presupposed(NamedTuple):
    """Python that brings about what the next steps are about."""

    body: str
    says: str


Step = Command | Python | Presupposed

ANOTHER_ORDER = """\
async with tidelog.Producer("host:9092") as first:
    await first.send("orders", b"another order")
"""
PROCESS = (
    ANOTHER_ORDER
    + """
async def process(record):
    print("processed", record.value.decode())
    raise EndOfTest
"""
)
RUNS_MAX = 20
"""Of Python that ends when nothing has come for a second: joining a group may take longer on a busy machine."""
INVOICE = (
    ANOTHER_ORDER
    + """
def invoice(value):
    print("invoice of", value.decode())
    return value
"""
)
OPEN_TRANSACTION = """\
async with tidelog.Producer("host:9092", transactional_id="billing-2") as producer:
    async with producer.transaction() as txn:
        await txn.send("orders", b"undecided")
        print("undecided", flush=True)
        os._exit(0)  # as a program that is killed
"""

ANOTHER_PREFERRED_LEADER = """\
async with tidelog.Admin("host:9092") as admin:
    (led,) = (await admin.describe_topic("orders")).partitions
    others = [node for node in range(3) if node != led.leader]
    (outcome,) = await admin.reassign({("orders", 0): [*others, led.leader]})
    print("the replicas of", outcome.partition)
"""
"""Without it, the partition may be led by its preferred leader, and no election is needed."""

STORY: tuple[Step, ...] = (
    Command("topic create orders"),
    Command("topic create invoices"),
    Command("topic create NAME -p 6 -r 3 -c min.insync.replicas=2", {"NAME": "payments"}),
    Python("README.md", "What works today", says="a value"),
    Python("README.md", "What works today, 2", behind="print('committed', len(records))", says="committed"),
    Python(
        "docs/client.md",
        "Writing",
        before="import pyarrow\nvalues, keys = [b'a', b'b'], [b'k', None]\ntable = pyarrow.table({'value': values})",
    ),
    Python("docs/client.md", "Transactions", before=INVOICE, says="invoice of another order"),
    Python("docs/client.md", "Reading", behind="print(record.value)\nbreak", says="b'"),
    Python("docs/client.md", "In a group", before=PROCESS, says="processed another order"),
    Python("docs/groups.md", "Consumer groups", before=PROCESS, says="processed another order"),
    Python(
        "docs/client.md",
        "Administration",
        before=f"from tidelog.security.acls import {', '.join(ACL_NAMES)}",
        values={'"orders"': '"shipments"'},
    ),
    Command("topic list", says="shipments"),
    Command("topic describe NAME"),
    Command("topic alter NAME -c retention.ms=3600000 -d segment.bytes -p 12", {"NAME": "shipments"}),
    Command("topic delete NAME", {"NAME": "shipments"}),
    Command(
        "produce TOPIC -k SEPARATOR --input FILE --timeout 1 --client-id NAME",
        {"TOPIC": "payments", "NAME": "nightly", "1": "60"},
        says="60 records acknowledged",
    ),
    Command("consume TOPIC --from earliest -p 1 -n 1 -f --keys", {"TOPIC": "payments"}, says="1 record"),
    Command("consume TOPIC --offset 1 -p 1", {"TOPIC": "payments"}, more="-n 1", says="1 record"),
    Command("consume TOPIC --group GROUP -f -n 1", {"TOPIC": "payments", "GROUP": "tellers"}, says="1 record"),
    Command("consume TOPIC --isolation read_committed", {"TOPIC": "invoices"}, says="another order"),
    Command("consume orders", says="another order"),
    Command("group list", says="tellers"),
    Command("group list --state Empty", says="tellers"),
    Command("group describe GROUP"),
    Command("group lag GROUP"),
    Command("group lag GROUP --watch", more="--times 1"),
    Command("group lag GROUP --watch --interval 2", more="--times 1"),
    Command("group reset-offsets GROUP --topic NAME --to-earliest"),
    Command("group reset-offsets GROUP -t TOPIC --to-earliest", says="nothing was changed"),
    Command("group reset-offsets GROUP -t TOPIC --to-latest"),
    Command("group reset-offsets GROUP -t TOPIC --to-time TIME"),
    Command("group reset-offsets GROUP -p TOPIC-N --by-duration PT1H"),
    Command("group reset-offsets GROUP -p TOPIC-N --to-offset 1"),
    Command("group reset-offsets GROUP --all-topics --shift-by -10 --execute", says="set"),
    Command("group delete-offsets GROUP -p TOPIC-N"),
    Command("group delete-offsets GROUP --partition TOPIC-N"),
    Command("group delete-offsets GROUP -t TOPIC", {"GROUP": "tellers", "TOPIC": "payments"}),
    Command("group delete-offsets GROUP --topic NAME", {"NAME": "payments"}),
    Command("group delete GROUP"),
    Command("txn list", says="billing-1"),
    Presupposed(OPEN_TRANSACTION, says="undecided"),
    Command("txn list --state STATE --open-for-ms 1 --pattern RE2", says="billing-2"),
    Command("txn list --state Ongoing --open-for-ms 1 --pattern RE2", says="billing-2"),
    Command("txn describe ID", {"ID": "billing-2"}, says="Ongoing"),
    Command("partition who-holds-lso TOPIC-N", says="tidelog txn abort billing-2"),
    Command("txn find-hanging"),
    Command("txn find-hanging --topic NAME"),
    Command("txn abort ID", {"ID": "billing-2"}, says="its open transaction is aborted"),
    Command("acl add --allow User:NAME -o OPERATION --topic NAME --prefixed --host ADDRESS"),
    Command("acl add --allow User:NAME -o Read --group NAME"),
    Command("acl list", says="User:alice"),
    Command("acl test User:NAME OPERATION --topic NAME --host ADDRESS", says="allow"),
    Command("acl remove --principal User:NAME --topic NAME --prefixed"),
    Command("user add NAME --password-file FILE", {"NAME": "alice"}),
    Command("user list", says="alice"),
    Command("user remove NAME", {"NAME": "alice"}),
    Command("quota set KEY=LIMIT", more="-u alice"),
    Command("quota set KEY=LIMIT --user U"),
    Command("quota set KEY=LIMIT --client-id C"),
    Command("quota set KEY=LIMIT --default-user"),
    Command("quota set KEY=LIMIT --default-client-id"),
    Command("quota list", says="alice"),
    Command("quota remove KEY", more="-u alice"),
    Command("cluster status"),
    Command("cluster upgrade"),
    Command("partition why-unavailable", says="no problems found"),
    Command("partition why-unavailable TOPIC-N", says="works"),
    Command("partition elect"),
    Presupposed(ANOTHER_PREFERRED_LEADER, says="the replicas of orders-0"),
    Command("partition elect TOPIC-N", says="1 partition"),
    Command("partition elect --unclean TOPIC-N", code=1, says="is led by node"),
    Command("partition elect --unclean --yes TOPIC-N", code=1, says="is led by node"),
    Command("partition reassign TOPIC-N --replicas 1,2,4", says="1 partition"),
    Command("partition reassign TOPIC-N --cancel", code=1, says="no reassignment of orders-0 is in progress"),
    Command("partition moves"),
    Command("node safe-to-restart 1"),
    Command("log dump PATH --records"),
    Command("log dump DIRECTORY"),
    Command(
        "certs create DIR --node NAME=HOST,HOST --client NAME --days 365",
        {"DIR": "certificates", "NAME=HOST,HOST": "node-0=localhost,127.0.0.1", "NAME": "alice"},
    ),
)

ONCE_STOPPED = (
    Command("quorum reset-epoch DIRECTORY", says="nothing was changed"),
    Command("quorum reset-epoch DIRECTORY --after 1", {"1": "1000"}),
)
"""Commands for stopped nodes."""

STARTS = "starts the cluster of this test, in a directory of its own and on free ports"
SECURED = "needs a cluster with TLS: test_security_walkthrough.py runs those of security.md"
NAMED = "names the command; the same page or another one has it with its arguments"
NOT_RUN = {
    "up": STARTS,
    "up --nodes 3": STARTS,
    "up --nodes 3 --data DIRECTORY": STARTS,
    "up --nodes 3 --data DIR --port 9092": STARTS,
    "--tls-ca FILE --tls-cert FILE --tls-key FILE topic list": SECURED,
    "docs/client.md: TLS": SECURED,
    "docs/client.md: Users and tokens": SECURED,
    "acl add": NAMED,
    "acl add --topic NAME": NAMED,
    "txn abort": NAMED,
    "partition elect --unclean": NAMED,
    "job archive": NAMED,
    "job audit": NAMED,
    "log dump PATH": "`log dump DIRECTORY` is the same",
    "cluster remove-voter 1": "takes a voter that is gone for good out of the quorum: test_quorum_processes.py",
    "txn abort --partition TOPIC-N --start-offset 1": "no write of this version's clients makes a transaction hang",
}


def written() -> set[str]:
    """All commands and pieces of Python of the documents."""
    found = set()
    for page in DOCUMENTS:
        text = (ROOT / page).read_text(encoding="utf-8")
        found |= {" ".join(words) for words in (*tidelog_commands(text), *sentence_commands(text))}
        found |= {f"{page}: {heading}" for heading in python_blocks(text)}
    return found


def name_of(step: Step) -> str:
    if isinstance(step, Presupposed):
        return f"presupposed: {step.says}"
    return step.words if isinstance(step, Command) else f"{step.page}: {step.heading}"


def test_all_that_the_documents_say_to_type_is_run_or_has_a_reason_why_not() -> None:
    run_here = [name_of(step) for step in (*STORY, *ONCE_STOPPED) if not isinstance(step, Presupposed)]
    assert sorted([*run_here, *NOT_RUN]) == sorted(written())


class Installed(NamedTuple):
    """A wheel in an environment of its own, and a cluster that its `tidelog up` started."""

    python: Path
    directory: Path
    bootstrap: str = ""

    def says_of(self, *command: str | Path) -> tuple[int, str]:
        done = completed(*command, cwd=self.directory, **self.environment())
        return done.returncode, done.stdout + done.stderr

    def environment(self) -> dict[str, str]:
        """By PYTHONPATH come the dependencies, which another installation has: no checkout, whose .pth is not read."""
        return {"PYTHONPATH": sysconfig.get_path("purelib"), "TIDELOG_BOOTSTRAP": self.bootstrap}

    def tidelog(self, step: Command) -> tuple[int, str]:
        values = {**VALUES, **step.values}
        words = [values.get(word, word) for word in step.words.split()]
        return self.says_of(self.python.parent / "tidelog", *words, *step.more.split())

    def program(self, text: str) -> tuple[int, str]:
        return self.says_of(self.python, "-c", re.sub(r'"host:9092[^"]*"|"localhost:9092"', repr(self.bootstrap), text))


def program_of(step: Python | Presupposed) -> str:
    """A piece of Python within a program that ends where the test has seen enough."""
    if isinstance(step, Presupposed):
        return within_main(step.body)
    body = python_blocks((ROOT / step.page).read_text(encoding="utf-8"))[step.heading]
    for word, value in step.values.items():
        body = body.replace(word, value)
    last = body.rstrip().splitlines()[-1]
    body += textwrap.indent(step.behind, last[: len(last) - len(last.lstrip())])
    return body if "asyncio.run(" in body else within_main(f"{step.before}\n{body}")


def within_main(body: str) -> str:
    return f"""import asyncio, os, tidelog
class EndOfTest(Exception): pass
async def main():
{textwrap.indent(body, "    ")}
try: asyncio.run(main())
except EndOfTest: pass
"""


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
        code, said = installed.tidelog(step) if isinstance(step, Command) else installed.program(program_of(step))
        if code != wanted or "Traceback" in said:
            break
        if step.says in said:
            return None
    return f"{name_of(step)}: exit code {code}, wanted {wanted} and {step.says!r}:\n{said}"


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_the_wheel_does_what_the_documents_say(tmp_path: Path) -> None:
    """Two minutes and more: it builds and installs the wheel, starts three nodes, and each of some eighty steps is a
    process that imports the client."""
    installed = Installed(install_alone(build_wheel(tmp_path), tmp_path / "venv"), tmp_path)
    where = run(installed.python, "-c", "import tidelog; print(tidelog.__file__)", cwd=tmp_path)
    assert Path(where).is_relative_to(tmp_path / "venv")
    (tmp_path / "lines").write_text("".join(f"{number}=payment {number}\n" for number in range(60)))
    with up(installed) as running:
        faults = [fault_of(step, running) for step in STORY]
    faults += [fault_of(step, installed) for step in ONCE_STOPPED]
    found = [fault for fault in faults if fault]
    assert not found, "\n\n".join(found)
