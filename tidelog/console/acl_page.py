"""Who may do what, and who can log in."""

from __future__ import annotations

from tidelog.client.admin import Admin
from tidelog.console.html import Html, element, table
from tidelog.console.layout import ROWS_SHOWN_MAX, not_shown, notice
from tidelog.console.page_call import PageCall, Shown
from tidelog.errors import TidelogError


async def acls(call: PageCall) -> Shown:
    """The access control lists and the users."""
    rules = await call.admin.describe_acls()
    return Shown(
        "Permissions",
        [
            table(
                f"{len(rules)} access control lists",
                ("Principal", "May", "Operation", "Resource", "Name", "Pattern", "From host"),
                [
                    (
                        each.principal,
                        each.permission.name.capitalize(),
                        each.operation.name,
                        each.resource_type.name,
                        each.resource_name,
                        each.pattern_type.name.lower(),
                        each.host,
                    )
                    for each in rules[:ROWS_SHOWN_MAX]
                ],
                empty="There are no access control lists: without an authorizer everyone may do everything, with one "
                "only super users may.",
            ),
            not_shown(len(rules), "`tidelog acl list` has all."),
            *await _users(call.admin),
        ],
    )


async def _users(admin: Admin) -> list[Html | None]:
    try:
        users = await admin.list_users()
    except TidelogError as error:
        return [notice(element("p", f"No users: {error.message}"))]
    shown = table(
        "Users with a password",
        ("User", "Mechanism", "Iterations"),
        [(each.name, each.mechanism, each.iterations) for each in users[:ROWS_SHOWN_MAX]],
        empty="Nobody logs in with a password.",
    )
    return [shown, not_shown(len(users), "`tidelog user list` has all.")]
