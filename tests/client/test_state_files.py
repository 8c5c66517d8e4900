"""Files of `tidelog apply`: TOML and JSON in one form, and a sentence for each mistake."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.document_commands import ROOT, python_blocks
from tidelog.cli import main
from tidelog.cli.state_files import read_password, read_state, refuse_incomplete_snapshots, refuse_unread_files
from tidelog.desired.desired_state import DesiredTopic, DesiredUser, PasswordSource, ResourceKind
from tidelog.errors import InvalidConfig
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.types import QuotaEntity, ScramMechanism


def write(home: Path, name: str, text: str) -> str:
    (home / name).write_text(text)
    return str(home / name)


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    toml = """
[topics.orders]
partitions = 6
configs.retention.ms = 1
configs."min.insync.replicas" = "2"
configs.unclean.leader.election.enable = false
[users.alice]
iterations = 5000
[[acls]]
allow = "User:alice"
operations = ["alter-configs"]
cluster = true
hosts = ["::ffff:10.0.0.1"]
[[quotas]]
default-user = true
client-id = "app"
request_percentage = 50
"""
    as_json = """{
    "topics": {"orders": {"partitions": 6, "configs": {"retention.ms": 1, "min.insync.replicas": "2",
                                                       "unclean.leader.election.enable": false}}},
    "users": {"alice": {"iterations": {"SCRAM-SHA-256": 5000, "SCRAM-SHA-512": 5000}}},
    "acls": [{"allow": "User:alice", "operations": ["ALTER_CONFIGS"], "cluster": true, "hosts": ["10.0.0.1"]}],
    "quotas": [{"default-user": true, "client-id": "app", "request_percentage": 50}]
}"""
    state = read_state([write(tmp_path, "a.toml", toml)])
    assert state == read_state([write(tmp_path, "a.json", as_json)])
    configs = {"retention.ms": "1", "min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    assert state.topics == {"orders": DesiredTopic(6, None, configs)}
    assert state.users == {"alice": DesiredUser(dict.fromkeys(ScramMechanism, 5000))}
    assert state.acls == {
        AclBinding(
            ResourceType.CLUSTER,
            "kafka-cluster",
            PatternType.LITERAL,
            "User:alice",
            "10.0.0.1",
            AclOperation.ALTER_CONFIGS,
            AclPermission.ALLOW,
        )
    }
    assert state.quotas == {QuotaEntity("", "app"): {"request_percentage": 50.0}}
    assert state.kinds == set(ResourceKind) - {ResourceKind.GROUP_OFFSETS}


def test_the_documented_file_is_one(tmp_path: Path) -> None:
    (text,) = python_blocks((ROOT / "docs/apply.md").read_text(), "toml").values()
    state = read_state([write(tmp_path, "state.toml", text)])
    assert state.topics["orders"].configs == {"retention.ms": "604800000", "min.insync.replicas": "2"}
    assert state.users["alice"].password == PasswordSource("ALICE_PASSWORD")
    assert state.users["bob"].password == PasswordSource(file="/run/secrets/bob")
    assert (len(state.acls), state.quotas) == (3, {QuotaEntity("alice", None): {"producer_byte_rate": 1_048_576.0}})


def test_a_directory_is_read_as_kubernetes_mounts_it(tmp_path: Path) -> None:
    """The files of a ConfigMap are links to a hidden directory that changes as a whole."""
    hidden = tmp_path / "..2026_11_29"
    hidden.mkdir()
    for name in ("a", "b"):
        write(hidden, f"{name}.toml", f"[topics.{name}]")
        (tmp_path / f"{name}.toml").symlink_to(f"..data/{name}.toml")
    (tmp_path / "..data").symlink_to(hidden.name)
    assert read_state([str(tmp_path)]).topics.keys() == {"a", "b"}


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Editors of Windows begin files with it."""
    for name, text in (("a.toml", "\ufeff[topics.a]"), ("b.json", '\ufeff{"topics": {"a": {}}}')):
        assert read_state([write(tmp_path, name, text)]).topics == {"a": DesiredTopic()}
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert read_state(["-"]).topics == {"a": DesiredTopic()}


@pytest.mark.parametrize("text", ["[topics.a]", ' {"topics": {"a": {}}}'])
def test_standard_input_has_either_form(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert read_state(["-", "-"]).topics == {"a": DesiredTopic()}, "it is read once"
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InvalidConfig, match="standard input is closed"):
        read_state(["-"])


def test_passwords_are_beside_the_file_or_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "secret", "of alice\nnot this line\n")
    file = write(tmp_path, "users.toml", '[users.alice]\npassword-file = "secret"\n[users.bob]\npassword-env = "BOB"')
    users = read_state([file]).users
    assert users["alice"].password == PasswordSource(file=str(tmp_path / "secret"))
    assert read_password(PasswordSource(file=str(tmp_path / "secret"))) == "of alice"
    assert users["bob"].password == PasswordSource("BOB")
    monkeypatch.setenv("BOB", "of bob")
    assert read_password(PasswordSource("BOB")) == "of bob"
    monkeypatch.setenv("BOB", "")
    with pytest.raises(InvalidConfig, match="which password-env names is not set") as refused:
        read_password(PasswordSource("BOB"))
    assert "BOB" not in refused.value.message, "by mistake, the value may be the password"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("topics = 1", "topics is no table"),
        ("topic = {}", "unknown key 'topic'; use topics, users, acls, quotas"),
        ("[topics]\na = 1", "a.toml: topics.a is no table"),
        ("[topics.a]\npartition = 1", "topics.a: unknown key 'partition'; use partitions"),
        ("[topics.a]\npartitions = 0", "partitions = 0: use a whole number of 1 or more"),
        ("[topics.a]\npartitions = true", "partitions = True: use a whole number"),
        ("[topics.a]\nid = 'x'", "is not the id of a topic"),
        ("[topics.a]\nconfigs = 1", "use a table of settings"),
        ("[topics.a]\nconfigs.x = 1979-05-27", "setting x = datetime.date(1979, 5, 27): use a text"),
        ("[users.a]\npassword = 'secret'", "a file has no password"),
        ("[users]\na = 'secret'", "a.toml: users.a is no table"),
        ("[users.a]\npassword-env = 'A'\npassword-file = 'a'", "use one of password-env and password-file"),
        ("[users.a]\npassword-env = ['secret']", "password-env is not the name of an environment variable"),
        ("[users.a]\nmechanisms = ['PLAIN']", "mechanism 'PLAIN' has no passwords"),
        ("[users.a]\nmechanisms = []", "mechanisms is empty"),
        ("[users.a]\nmechanisms = 'SCRAM-SHA-256'", "use a list of texts"),
        ("[users.a]\niterations = {PLAIN = 1}", "unknown key 'PLAIN'; use SCRAM-SHA-256, SCRAM-SHA-512"),
        ("acls = 1", "acls is no list: write [[acls]]"),
        ("[[acls]]\noperations = ['read']\ntopic = 'a'", "acls 1: name one principal"),
        ("[[acls]]\nallow = 'User:a'\ndeny = 'User:b'\noperations = ['read']", "name one principal"),
        ("[[acls]]\nallow = 'User:a'\noperations = ['read']", "name one resource"),
        ("[[acls]]\nallow = 'User:a'\ntopic = 'a'\ncluster = true\noperations = ['read']", "name one resource"),
        ("[[acls]]\nallow = 'User:a'\ntopic = 'a'", "name operations"),
        ("[[acls]]\nallow = 'User:a'\ntopic = 'a'\noperations = ['reed']", "acls 1: unknown operation 'reed'"),
        ("[[acls]]\nallow = 'alice'\ntopic = 'a'\noperations = ['read']", "write User:NAME"),
        ("[[acls]]\nallow = 'User:a'\ntopic = 'a'\noperations = ['read']\nprefixed = 1", "use true or false"),
        ("[[quotas]]\nproducer_byte_rate = 1", "name whose quotas"),
        ("[[quotas]]\nuser = 'a'\ndefault-user = true\nproducer_byte_rate = 1", "not both"),
        ("[[quotas]]\nuser = 'a'", "name a limit"),
        ("[[quotas]]\nuser = 'a'\nproducer_byte_rate = '1'", "use a number"),
        ("[[quotas]]\nuser = 'a'\nrequest_percentage = 1\n" * 2, "quotas of user 'a' are there already"),
        ("[[group-offsets.g]]\ntopic = 'a'", "needs topic, partition and offset"),
        ("group-offsets = 1", "is no table of groups"),
        ("[[group-offsets.g]]\ntopic = 'a'\npartition = 0\noffset = 1\n" * 2, "the offset of a-0 is there already"),
        ("[topics.a.configs]\nretention.ms = 1\n'retention.ms' = 2", "setting retention.ms is there twice"),
        ("[[acls]]\nallow = 'User:a'\ntopic = 'a'\noperations = ['read']\nhosts = []", "hosts is empty"),
        (f"[[quotas]]\nuser = 'a'\nrequest_percentage = 1{'0' * 400}", "request_percentage is too large a number"),
        (f"topics.a.partitions = 1{'0' * 5_000}", "a.toml is not TOML: Exceeds the limit"),
        ("topics = " + "[" * 100_000, "a.toml: its tables are nested too deeply"),
        ("topics.a.configs." + ".".join("a" * 5_000) + " = 1", "a.toml: its tables are nested too deeply"),
        ("[users.a]\npassword-file = '~of-no-such-user/a'", "has no path"),
        ("[topics.a", "a.toml is not TOML"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        read_state([write(tmp_path, "a.toml", text)])
    assert says in refused.value.message
    assert "secret" not in refused.value.message.replace("password-", "")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"topics": {"a": {}}, "topics": {"b": {}}}', "topics"),
        ('{"topics": {"a": {"partitions": 1}, "a": {"partitions": 2}}}', "a"),
    ],
)
def test_a_key_that_is_twice_in_json_is_refused(tmp_path: Path, text: str, key: str) -> None:
    """Python keeps the last one: with --prune, the topics of the first section would be deleted."""
    with pytest.raises(InvalidConfig, match=f"is not JSON: the key '{key}' is twice in one object"):
        read_state([write(tmp_path, "a.json", text)])


def test_an_object_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, f"{name}.toml", f"[topics.orders]\npartitions = 1\n[topics.{name}]")
    with pytest.raises(InvalidConfig, match=r"b.toml: topic orders is in .*a.toml too"):
        read_state([str(tmp_path)])


def test_nothing_is_asked_of_a_cluster_if_the_files_are_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And --diff does not end as if something differed."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for place, says in (
        (str(empty), "has no file *.toml or *.json"),
        (str(tmp_path / "absent.toml"), "cannot be read: No such file"),
        (write(tmp_path, "a.yaml", "topics: {}"), "its form is unknown"),
    ):
        assert main(["apply", "-f", place]) == 1
        assert says in capsys.readouterr().err
        assert main(["apply", "-f", place, "--diff"]) == 2
        assert says in capsys.readouterr().err
    assert main(["apply"]) == 2
    assert main(["apply", "-f", ""]) == 2
    assert "name a file or a directory" in capsys.readouterr().err
    assert main(["apply", "-f", "a.toml", "--prune-prefix", "a"]) == 2
    assert "pass --prune too" in capsys.readouterr().err
    assert main(["apply", "-f", "a.toml", "--prune", "--prune-prefix", "a", "--prune-prefix", ""]) == 2
    assert "would be every name" in capsys.readouterr().err


@pytest.mark.usefixtures("no_lag")
def test_prune_refuses_files_in_a_directory_that_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Moved there, they would no longer count, and their topics would be deleted."""
    write(tmp_path, "A.TOML", "[topics.a]")
    for below, text in ((".git", "no state"), ("notes", "")):
        (tmp_path / below).mkdir()
        write(tmp_path / below, "b.json" if text else "README", text)
    refuse_unread_files([str(tmp_path), "-", "absent.toml"])
    assert read_state([str(tmp_path)]).topics.keys() == {"a"}
    (tmp_path / "team" / "deep").mkdir(parents=True)
    write(tmp_path / "team" / "deep", "c.toml", "[topics.c]")
    where = ["apply", "-f", str(tmp_path), "-b", "127.0.0.1:1", "--diff"]
    assert main([*where, "--prune"]) == 2
    assert f"{tmp_path / 'team'} has files that are not read" in capsys.readouterr().err
    assert main(where) == 2
    assert "not read" not in capsys.readouterr().err
    (tmp_path / "team" / "deep" / "c.toml").rename(tmp_path / "team" / "c.toml")
    refuse_unread_files([str(tmp_path), str(tmp_path / "team")])


@pytest.mark.usefixtures("no_lag")
def test_prune_refuses_a_snapshot_that_lacks_topics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The user who took it could not see them; --prune by an administrator would delete them."""
    file = write(tmp_path, "cluster.json", '{"snapshot": {"missing-topics": 2}, "topics": {}}')
    users = write(tmp_path, "users.json", '{"snapshot": {"missing-topics": 2}, "users": {}}')
    whole = write(tmp_path, "whole.json", '{"snapshot": {"missing-topics": 0}, "topics": {}}')
    assert main(["apply", "-f", whole, "-f", file, "--prune", "-b", "127.0.0.1:1"]) == 1
    says = f"{file} is an incomplete snapshot: it lacks 2 topics, which --prune would delete"
    assert says in capsys.readouterr().err
    assert main(["cluster", "restore", file, "-b", "127.0.0.1:1"]) == 1
    assert f"{file} is incomplete: it lacks 2 topics that its cluster had" in capsys.readouterr().err
    for kept in (users, whole):
        refuse_incomplete_snapshots(read_state([kept]))


@pytest.mark.usefixtures("no_lag")
def test_a_diff_without_an_answer_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["-f", write(tmp_path, "a.toml", "[topics.a]"), "-b", "127.0.0.1:1"]
    assert main(["apply", *where, "--diff"]) == 2
    assert "tidelog apply: " in capsys.readouterr().err
