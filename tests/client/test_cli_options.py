"""Options that all commands share: profiles, the environment, places before and after the command, imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.memory_cluster import cluster_in_a_thread
from tests.client.terminal import Terminal
from tidelog.cli.app import app
from tidelog.cli.declared import CommandGroup, commands_below

NOWHERE = "127.0.0.1:1"
HEAVY = {"cryptography", "pyarrow", "numpy", "pandas", "lz4", "zstandard"}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TIDELOG_BOOTSTRAP", "TIDELOG_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "tidelog" / "config.toml"
    path.parent.mkdir()
    return path


def test_a_profile_names_the_cluster(config: Path, tidelog: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line counts most, then a profile that it names, then the environment, then another profile."""
    with cluster_in_a_thread() as here, cluster_in_a_thread() as there:
        here.create("here")
        there.create("there")
        addresses = json.dumps(there.bootstrap.split(","))
        config.write_text(
            f'[profile.default]\nbootstrap = "{here.bootstrap}"\n[profile.other]\nbootstrap = {addresses}\n'
        )

        def topics(*arguments: str) -> list[str]:
            assert tidelog(*arguments, "--json") == 0, tidelog.err
            return [each["name"] for each in tidelog.json]

        assert topics("topic", "list") == ["here"]
        assert topics("topic", "list", "--profile", "other") == ["there"]
        assert topics("--profile", "other", "topic", "list") == ["there"]
        monkeypatch.setenv("TIDELOG_PROFILE", "other")
        assert topics("topic", "list") == ["there"]
        assert topics("topic", "--profile", "default", "list") == ["here"]
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", here.bootstrap)
        assert topics("topic", "list") == ["here"], "the environment names another cluster"
        assert topics("topic", "list", "--profile", "other") == ["there"]
        assert topics("topic", "list", "--profile", "other", "-b", here.bootstrap) == ["here"]


def test_a_profile_has_defaults_of_options(config: Path, tidelog: Terminal) -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        config.write_text(
            f'[profile.default]\nbootstrap = "{cluster.bootstrap}"\n'
            '[profile.default.defaults.produce]\nkey-separator = ":"\nheader = ["a=1", "b=2"]\n'
            "[profile.default.defaults.consume]\nmax = 1\nkeys = true\n"
            "[profile.default.defaults.topic.create]\npartitions = 3\n"
        )
        assert tidelog("produce", "orders", typed=b"k:v\nl:w\n") == 0
        assert tidelog("consume", "orders") == 0
        assert tidelog.out == b"k\tv\n"
        assert tidelog("consume", "orders", "--max", "2", "--json") == 0, "--keys of the profile yields to --json"
        assert tidelog("--json", "consume", "orders", "-n", "2") == 0
        assert tidelog("consume", "orders", "-n", "2", "-f", r"%s\n") == 0
        assert tidelog.out == b"v\nw\n"
        assert tidelog("consume", "orders", "--json", "--keys") == 2, "both are on the command line"
        assert tidelog("topic", "create", "new") == 0
        assert len(cluster.topics["new"].partitions) == 3


@pytest.mark.parametrize(
    ("content", "arguments", "says"),
    [
        (None, ("--profile", "other"), "config.toml does not exist; create it with a table [profile.other]"),
        ("", ("--profile", "other"), "has no profile 'other' (profiles: none)"),
        ("[profile.a]\n[profile.b]", ("--profile", "c"), "(profiles: a, b)"),
        ("[profile.default]\nbotstrap = 'x'", (), "unknown setting 'botstrap'; use bootstrap"),
        ("[profile.default]\nbootstrap = 1", (), "bootstrap = 1: use a text"),
        ("[profile", (), "cannot be read"),
        ("[profile.default.defaults.topic.list]\nsort = 1", (), "'topic list' has no option 'sort'"),
        ("[profile.default]\ntls-ca = 'ca.pem'", (), "tidelog/ca.pem"),
    ],
)
def test_an_unusable_profile_is_named(
    config: Path, tidelog: Terminal, content: str | None, arguments: tuple[str, ...], says: str
) -> None:
    if content is not None:
        config.write_text(content)
    assert tidelog(*arguments, "topic", "list") == 1
    assert says in tidelog.err
    assert "Traceback" not in tidelog.err


def test_every_command_takes_json_and_what_is_said_about_a_cluster_before_and_after_it() -> None:
    for command in commands_below(app):
        if isinstance(command, CommandGroup):
            continue
        assert command.callback is not None
        names = {name for each in command.params for name in each.opts}
        without = ("run", "archive", "restore", "audit", "profile", "table")  # a node; jobs parse their own arguments
        assert "--json" in names or command.name in without, command.name
        assert ("--bootstrap" in names) == ("--profile" in names)


def test_a_missing_node_is_said_early_and_each_address_is_named(
    config: Path, tidelog: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """192.0.2.0/24 belongs to nobody (RFC 5737): no packet is answered."""
    addresses = (NOWHERE, "192.0.2.1:9192", "192.0.2.2:9192", "no-such-host.invalid:9192")
    begun = os.times().elapsed
    assert tidelog("topic", "create", "orders", "-b", ",".join(addresses)) == 1
    assert os.times().elapsed - begun < 30, "5 s on an idle machine, and not the minute of a call"
    first, *_, last = tidelog.err.splitlines()
    assert first.startswith("tidelog: no node of the cluster answers, the client keeps trying: ")
    for address in addresses:
        assert address in first and address in last
    assert "no connection" in last and "the name does not resolve" in last


def test_a_node_is_run_and_probed_as_by_its_own_programs(tidelog: Terminal, tmp_path: Path) -> None:
    assert tidelog("node", "probe", NOWHERE, "--ready", "--caught-up") == 2
    assert "--ready or --caught-up" in tidelog.err
    assert tidelog("node", "probe", NOWHERE, "--ready", "--json") == 1
    assert tidelog.json["ready"] is False and NOWHERE in tidelog.json["reason"]
    absent = tmp_path / "absent.toml"
    assert tidelog("node", "run", "--config", str(absent)) not in (0, 130)
    assert str(absent) in tidelog.err


def imported(code: str) -> set[str]:
    """Modules that a new process has imported once it has run the code."""
    printing = "import sys; print('\\n', *sys.modules, sep='\\n')"
    ended = subprocess.run([sys.executable, "-c", f"{code}\n{printing}"], capture_output=True, text=True, check=True)
    return set(ended.stdout.split())


def test_a_command_imports_no_other_command_and_nothing_that_it_does_not_use() -> None:
    """What is imported decides how long a command takes to start."""
    with cluster_in_a_thread() as cluster:
        modules = imported(
            f"from tidelog.cli import main; main(['topic', 'list', '--bootstrap', {cluster.bootstrap!r}])"
        )
    assert {name for name in modules if name.startswith("tidelog.cli.") and name.endswith("_commands")} == {
        "tidelog.cli.topic_commands"
    }
    assert modules & HEAVY == set()


def test_what_a_script_imports_before_an_interrupt_is_silent_is_little() -> None:
    """The script that pip installs imports `tidelog.cli` before it calls `main`: Python would print a traceback."""
    modules = imported("import tidelog.cli")
    own = {name for name in modules if name.startswith("tidelog.")}
    assert own == {"tidelog.cli", "tidelog.cli.interrupts", "tidelog.forks", "tidelog.grpc_environment"}
    assert modules & {"dataclasses", "inspect", "json"} == set()


def test_the_producer_is_imported_without_the_other_clients() -> None:
    modules = imported("import tidelog; tidelog.Producer")
    assert "tidelog.client.producer" in modules
    assert modules & {"tidelog.client.consumer", "tidelog.client.admin", "tidelog.cli", *HEAVY} == set()


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from tidelog.cli import main; main(['--help']); "
        "heavy = ('grpc', 'rich', 'google.protobuf', 'tidelog.cli.topic_commands'); "
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert ended.stderr == b"[]\n"
