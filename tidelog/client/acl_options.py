"""Checks of what callers pass as rules of access control lists: only an Admin client needs them."""

from __future__ import annotations

from typing import Any, Final, TypeVar, get_type_hints

from tidelog.errors import InvalidRequest
from tidelog.security.acls import AclBinding, AclFilter

Acl = TypeVar("Acl", AclBinding, AclFilter)

_ACL_FIELDS: Final = get_type_hints(AclBinding)


def checked_acl(kind: type[Acl], what: str, value: object) -> Acl:
    """Return a binding or a filter of ACLs with fields of the right types. Raises TypeError, InvalidRequest."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} must be an {kind.__name__}, not {type(value).__name__}: {value!r}")
    for name in _ACL_FIELDS:
        given = getattr(value, name)
        if given is not None or kind is AclBinding:  # in a filter None selects every value
            checked_acl_field(name, given)
    return value


def checked_acl_field(name: str, value: Any) -> Any:
    """Return the value of a field of an ACL. Raises TypeError, InvalidRequest."""
    kind = _ACL_FIELDS[name]
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, not {type(value).__name__}: {value!r}")
    if isinstance(value, str) and not value.isprintable():
        raise InvalidRequest(f"{name}={value!r}: it has characters that are not printable")
    return value
