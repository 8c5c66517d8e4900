"""Errors of object stores and of what is in them. Each message names the object, the cause and the next step."""

from __future__ import annotations

from typing import Final

from tidelog.errors import Retry, TidelogError


class ObjectStoreUnavailable(TidelogError, code=1070, status="UNAVAILABLE", retry=Retry.LATER, written=None):
    """The object store does not answer, or answers with an error of its own. A write may have happened."""


class ObjectStoreRefused(TidelogError, code=1071, status="PERMISSION_DENIED", retry=Retry.NEVER, written=False):
    """The object store refuses the credentials, or it has no such bucket."""


class ObjectStoreFull(TidelogError, code=1072, status="RESOURCE_EXHAUSTED", retry=Retry.LATER, written=False):
    """The object store has no space left, or a quota is used up. Reads continue."""


class RemoteObjectMissing(TidelogError, code=1073, status="DATA_LOSS", retry=Retry.NEVER, written=None):
    """The object store answers that it has no such object."""


class RemoteObjectDamaged(TidelogError, code=1074, status="DATA_LOSS", retry=Retry.NEVER, written=None):
    """An object in the object store is shorter than it was, or its bytes have changed."""


STORE_ERRORS: Final = (ObjectStoreUnavailable, ObjectStoreRefused, ObjectStoreFull)
"""Errors of the store, whichever object is asked for."""
