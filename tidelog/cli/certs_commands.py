"""`tidelog certs create`: an authority, and certificates of nodes and clients that it signs."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.cli.output import Json, print_json
from tidelog.errors import InvalidConfig, UnsupportedVersion
from tidelog.standard_streams import say

if TYPE_CHECKING:
    from tidelog.security.certificates import KeyAndCertificate

AUTHORITY = "ca"
AUTHORITY_DAYS = 3_650

app = CommandGroup()


def create(
    directory: Annotated[Path, Argument(help="Where the files are written.")],
    node: Annotated[
        list[str] | None,
        Option("--node", help="NAME=HOST,HOST: a node and the hosts and addresses at which others connect to it."),
    ] = None,
    client: Annotated[list[str] | None, Option("--client", help="NAME: a client, User:CN=NAME.")] = None,
    days: Annotated[int, Option("--days", min=1, max=AUTHORITY_DAYS, help="Days that they are valid.")] = 365,
    as_json: Json = False,
) -> None:
    """Create an authority (ca.pem, ca.key) and certificates that it signs (NAME.pem, NAME.key).

    If the directory has an authority already, that one signs. A certificate of the same name is replaced; running nodes
    and clients use the new one without a restart.
    """
    try:
        from tidelog.security import certificates
    except ModuleNotFoundError as missing:
        raise UnsupportedVersion(f"certificates need {missing.name}: pip install 'tidelog[cli]'") from missing
    named = [_node(each) for each in node or ()]
    nodes, clients = dict(named), list(client or ())
    _ensure_names([*(name for name, _ in named), *clients])
    now = datetime.now(UTC)
    written: list[str] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / f"{AUTHORITY}.pem").exists():
            authority = certificates.KeyAndCertificate(
                (directory / f"{AUTHORITY}.pem").read_bytes(), (directory / f"{AUTHORITY}.key").read_bytes()
            )
        else:
            authority = certificates.create_authority("tidelog certs", now=now, days=AUTHORITY_DAYS)
            written += _write(directory, AUTHORITY, authority)
        for name, hosts in nodes.items():
            made = certificates.create_node(authority, name, hosts, now=now, days=days)
            written += _write(directory, name, made)
        for name in clients:
            written += _write(directory, name, certificates.create_client(authority, name, now=now, days=days))
    except OSError as error:
        raise InvalidConfig(
            f"{error.filename}: {error.strerror}. Name a directory that can be written, with both files of its "
            f"authority ({AUTHORITY}.pem, {AUTHORITY}.key) or none"
        ) from error
    if as_json:
        print_json({"files": written})
        return
    for path in written:
        say(path)
    say(f"keep {directory / AUTHORITY}.key away from nodes and clients: who has it can become any of them")


app.add("create", create)


def _node(text: str) -> tuple[str, list[str]]:
    name, _, hosts = text.partition("=")
    found = [host.strip() for host in hosts.split(",") if host.strip()]
    if not name or not found:
        raise InvalidConfig(f"--node {text!r}: write NAME=HOST,HOST, for example node-0=node-0.example.org,10.0.0.1")
    return name, found


def _ensure_names(names: list[str]) -> None:
    for name in names:
        if name == AUTHORITY or name.startswith(".") or "/" in name or "\0" in name or not name:
            raise InvalidConfig(f"{name!r} cannot be the name of a certificate: it becomes the name of its files")
        if names.count(name) > 1:
            raise InvalidConfig(f"{name!r} is named twice; name each certificate once")


def _write(directory: Path, name: str, made: KeyAndCertificate) -> list[str]:
    """Write NAME.key and NAME.pem."""
    # Each is renamed over the former one: a process that reads between the two finds a pair that does not fit together,
    # and keeps using the pair that it has.
    written = []
    for suffix, contents, mode in ((".key", made.key, 0o600), (".pem", made.certificate, 0o644)):
        path = directory / f"{name}{suffix}"
        part = directory / f"{name}{suffix}.part"
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(contents)
        part.replace(path)
        written.append(str(path))
    return sorted(written)
