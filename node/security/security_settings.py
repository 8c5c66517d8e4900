"""Settings of the authorizer and of the audit log."""

from __future__ import annotations

import re
from typing import Final

from tidelog.errors import InvalidRequest
from tidelog.security.acls import ANYONE, checked_principal
from tidelog.settings import InvalidValue, SettingKind, choice, flag, number, setting, size, text
from tidelog.values import dataclass

AUDIT_BYTES: Final = 100 << 20


_SEPARATOR: Final = re.compile(r"(?<!\\);")
"""Between principals, as in Kafka. In a distinguished name it is escaped (RFC 2253)."""


def _principals_of(value: object) -> frozenset[str]:
    items = _SEPARATOR.split(value) if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError(value)
    for item in items:
        if _SEPARATOR.search(item):
            raise InvalidValue(
                f"{item!r} has a ; and each item of a list is one principal: make each an item, or write one text "
                "without a list; a ; that belongs to a name is written \\;"
            )
    names = frozenset(item.strip() for item in items if item.strip())
    for name in names:
        try:
            checked_principal(name)
        except InvalidRequest as error:
            raise InvalidValue(error.message) from None
        if name == ANYONE:
            raise InvalidValue(f"{ANYONE} is no principal; name each super user")
    return names


_PRINCIPALS: Final = SettingKind(
    "a list of principals in quotes, or one text of principals separated by ;",
    parse=_principals_of,
    check=_principals_of,
    show=lambda names: ";".join(sorted(names)),
)


@dataclass(frozen=True, slots=True)
class AuthorizerConfig:
    """Whether the node refuses requests that no ACL allows, and who is exempt."""

    enabled: bool = setting("authorizer.class.name", False, choice({"none": False, "StandardAuthorizer": True}))
    """`StandardAuthorizer`: every request needs permission by the ACLs of the cluster; `none`: no request is refused.
    If it is not set, and a listener requires certificates or has SASL: `StandardAuthorizer` (security.md, Setting it
    up)"""
    super_users: frozenset[str] = setting("super.users", frozenset(), _PRINCIPALS)
    """the administrators: principals that may do everything, whatever the ACLs say. Required with `StandardAuthorizer`,
    unless `allow.everyone.if.no.acl.found` is set. Nodes need not be among them"""
    allow_everyone: bool = setting("allow.everyone.if.no.acl.found", False, flag())
    """true: everyone may use a resource to which no ACL refers"""


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Where the audit log goes, and how large it may become."""

    file: str = setting("audit.log.file", "", text())
    """the file of the audit log (security.md, Audit log); its directory must exist. If not set, the events are lines of
    the node's log, of the logger `node.audit`"""
    bytes_max: int = setting("audit.log.max.bytes", AUDIT_BYTES, size(1 << 16, 1 << 40))
    """the audit log begins another file before it exceeds this size"""
    files_max: int = setting("audit.log.max.files", 5, number(2, 1_000))
    """how many files of the audit log are kept, the current one included: FILE, FILE.1 (the latest full one), ..."""
