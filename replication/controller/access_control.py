"""Changes of the access control lists.

Invariants: the lists have at most `ACLS_MAX` rules, and a request changes at most `CHANGED_MAX`. Every rule is one that
a request can meet (`tidelog.security.acls.checked_binding`). A request changes all of what it names or nothing.
Not here: decisions by the rules (node/security/).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from replication.controller import features
from replication.controller.image import ClusterImage
from replication.controller.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from tidelog.errors import InvalidRequest
from tidelog.security.acls import AclBinding, AclFilter, checked_binding

ACLS_MAX: Final = 10_000
"""Every node has all rules in memory, at some 500 bytes each, and every new image copies the set if it changes."""

CHANGED_MAX: Final = 1_000
"""Rules that one request creates or removes: they are one batch of the metadata log, at most 1.7 MB."""

FILTERS_MAX: Final = 20
"""Each filter is compared with each rule: 20 filters and 10,000 rules take about 80 ms."""

_WHAT: Final = "a change of access control lists"


def created(image: ClusterImage, bindings: Collection[AclBinding]) -> list[AccessControlEntryRecord]:
    """The records of the rules that do not exist yet. Raises InvalidRequest, UnsupportedVersion."""
    features.require(image, features.ACLS, _WHAT)
    if not bindings or len(bindings) > CHANGED_MAX:
        raise InvalidRequest(f"the request has {len(bindings)} ACLs: name 1 to {CHANGED_MAX}")
    new = sorted({checked_binding(each) for each in bindings} - image.acls)
    if len(image.acls) + len(new) > ACLS_MAX:
        raise InvalidRequest(
            f"the cluster has {len(image.acls)} ACLs and may have {ACLS_MAX}, {len(new)} more are too many: use "
            "prefixed patterns, or remove ACLs that are not needed"
        )
    return [AccessControlEntryRecord(each) for each in new]


def removed(image: ClusterImage, filters: Collection[AclFilter]) -> list[RemoveAccessControlEntryRecord]:
    """The records of the rules that any filter selects. Raises InvalidRequest, UnsupportedVersion."""
    features.require(image, features.ACLS, _WHAT)
    if not filters or len(filters) > FILTERS_MAX:
        raise InvalidRequest(f"the request has {len(filters)} filters: name 1 to {FILTERS_MAX}")
    selected = sorted(each for each in image.acls if any(asked.selects(each) for asked in filters))
    if len(selected) > CHANGED_MAX:
        raise InvalidRequest(
            f"the filters select {len(selected)} ACLs, and one request removes at most {CHANGED_MAX}: name a resource "
            "or a principal too"
        )
    return [RemoveAccessControlEntryRecord(each) for each in selected]
