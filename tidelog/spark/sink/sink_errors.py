"""What the sink raises about a whole batch, on the driver or in a task."""

from __future__ import annotations

from tidelog.errors import Retry, TidelogError


class DifferentRetry(TidelogError, code=1061, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """A batch is written again with other rows, or with its rows divided otherwise among tasks, after a part of it was
    committed. Nothing of this attempt is committed."""


class OutdatedBatch(TidelogError, code=1062, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The sink has committed a later batch than the one to be written: the checkpoint is older than the output, or two
    queries share a sink id. Nothing of this attempt is committed."""


class BatchNotCommitted(TidelogError, code=1063, status="ABORTED", retry=Retry.LATER, written=None):
    """The transactions of some tasks could not be committed. A restart of the query writes the batch again; what is
    committed already is recognized and left out."""
