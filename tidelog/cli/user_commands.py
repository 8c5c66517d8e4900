"""`tidelog user add|list|remove`: users that authenticate by SCRAM. Passwords are never arguments of a command."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated

import click

from tidelog.cli.cluster_command import CommandCall, cluster_command
from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.cli.output import counted
from tidelog.client.admin import Admin
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.printable import shell_word
from tidelog.security.acls import AclFilter
from tidelog.security.sasl_user import Sasl
from tidelog.security.scram import ITERATIONS

app = CommandGroup()
Name = Annotated[str, Argument(help="Name of the user; its principal is User:NAME.")]


@cluster_command(app)
def add(
    call: CommandCall,
    name: Name,
    password_file: Annotated[
        str | None,
        Option("--password-file", help="File with the password in its first line; - for standard input."),
    ] = None,
    mechanism: Annotated[
        list[str] | None, Option("--mechanism", help="SCRAM-SHA-256 or SCRAM-SHA-512; default: both.")
    ] = None,
    iterations: Annotated[int, Option("--iterations", help="Iterations of PBKDF2.")] = ITERATIONS,
) -> None:
    """Create a user, or change its password. Without --password-file the password is prompted for.

    Sessions with the former password end. With --mechanism, other mechanisms of the user keep their password.
    """
    password = _password(name, password_file)
    mechanisms = mechanism or ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    call.query(lambda admin: admin.set_password(name, password, mechanisms=mechanisms, iterations=iterations))
    document = {"name": name, "mechanisms": mechanisms, "iterations": iterations}
    call.report(document, f"user {name!r} can log in with {' and '.join(mechanisms)}")


@cluster_command(app, "list")
def list_users(call: CommandCall) -> None:
    """List the users and their mechanisms."""
    users = call.query(lambda admin: admin.list_users())
    rows = [(user.name, user.mechanism, user.iterations) for user in users]
    call.show(users, "users", ("name", "mechanism", "iterations"), rows)


@cluster_command(app)
def remove(call: CommandCall, name: Name) -> None:
    """Remove a user: its sessions end. ACLs and quotas of that name remain, and hold for a later user of that name."""

    async def change(admin: Admin) -> list[str]:
        await admin.remove_user(name)
        return [] if call.as_json else await _left(admin, name)

    left = call.query(change)
    call.report({"name": name, "removed": True}, f"user {name!r} removed", *left)


async def _left(admin: Admin, name: str) -> list[str]:
    """ACLs and quotas of a removed user, with the commands that remove them."""
    left = []
    principal = f"User:{name}"
    with suppress(TidelogError):  # the caller may lack the permission to see them; the removal has succeeded anyway
        acls = await admin.describe_acls(AclFilter(principal=principal))
        if acls:
            command = f"tidelog acl remove --principal {shell_word(principal)}"
            left.append(f"{counted(len(acls), 'ACL')} of {principal} left: {command}")
    with suppress(TidelogError):
        for entity, limits in (await admin.describe_client_quotas(user=name)).items():
            command = f"tidelog quota remove --user {shell_word(name)}"
            if entity.client_id is not None:
                command += (
                    f" --client-id {shell_word(entity.client_id)}" if entity.client_id else " --default-client-id"
                )
            left.append(f"{counted(len(limits), 'quota')} of {entity} left: {command}")
    return left


def _password(name: str, file: str | None) -> str:
    """The password from a file, standard input or a prompt. Raises InvalidConfig."""
    if file is None:
        if not sys.stdin.isatty():
            raise InvalidConfig(
                "no terminal to ask for the password: give --password-file FILE, or - for standard input"
            )
        return str(click.prompt(f"password of {name}", hide_input=True, confirmation_prompt=True, err=True))
    if file != "-":
        return Sasl(name, password_file=file).read_password()
    text = sys.stdin.read()
    return text.splitlines()[0] if text else ""
