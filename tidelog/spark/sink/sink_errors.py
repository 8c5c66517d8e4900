"""What the sink raises about a whole batch, on the driver or in a task, and the next steps that its errors name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    ProducerFenced,
    Retry,
    TidelogError,
    TransactionAbortable,
)

NOT_COMMITTED: Final = (TransactionAbortable, ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping)
"""Refusals by which a coordinator or a leader says that the transaction has been aborted."""


class DifferentRetry(TidelogError, code=1061, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """A batch is written again with other rows, or with its rows divided otherwise among tasks, after a part of it was
    committed. Nothing more of this attempt is committed."""


class OutdatedBatch(TidelogError, code=1062, status="FAILED_PRECONDITION", retry=Retry.NEVER, written=False):
    """The sink has committed a later batch than the one to be written: the checkpoint is older than the output, or two
    queries share a sink id. Nothing more of this attempt is committed."""


class BatchNotCommitted(TidelogError, code=1063, status="ABORTED", retry=Retry.LATER, written=None):
    """The transactions of some tasks could not be committed. A restart of the query writes the batch again; what is
    committed already is recognized and left out."""


@dataclass(frozen=True, slots=True)
class SinkAdvice:
    """The next steps after an error of one kind of write, as sentences."""

    repeat: str
    """How to write the batch again."""
    lost: str
    """What to do if the rows of the batch cannot be read again."""
    complete: str
    """What to do if the whole batch is committed, but the repetition has other rows."""
    outdated: str
    """Why a batch may be older than the last one, and what to do."""
    shorter: str
    """How to stay within the transaction timeout."""


STREAM_ADVICE: Final = SinkAdvice(
    repeat="Restart the query",
    lost="If its rows can no longer be read (retention), it cannot be completed, and what is committed of it stays: "
    "continue with a new checkpoint that starts behind it, and another tidelog.sink.id if one is set",
    complete="The batch is complete in the output. Restart the query with the code and settings of the earlier "
    "attempt, so that the batch has the same rows again; if it cannot have them, continue with a new checkpoint that "
    "starts behind it, and another tidelog.sink.id if one is set",
    outdated="If another run of this query was still going while this one started, start it again: it continues after "
    "that run. Else either the checkpoint is older than the output or was deleted (give the new query another "
    "tidelog.sink.id), or another query has the same sink id (each needs its own)",
    shorter="set maxOffsetsPerTrigger",
)
WRITE_ADVICE: Final = SinkAdvice(
    repeat="Repeat the write with the same tidelog.sink.id and tidelog.sink.batch",
    lost="If its rows can no longer be read, it cannot be completed, and what is committed of it stays: write the "
    "others with another tidelog.sink.id",
    complete="The earlier write is complete, and its rows stay. If this was meant to repeat it, nothing is missing; if "
    "it was meant to add rows, write them with another tidelog.sink.id, or with a larger tidelog.sink.batch",
    outdated="The number in tidelog.sink.batch must grow (a write without it has the number 0), also over restarts: "
    "after a lost checkpoint use another tidelog.sink.id. Jobs, queries, and the writes in one foreachBatch need a "
    "sink id each",
    shorter="write fewer rows at a time: in several batches, or in foreachBatch with maxOffsetsPerTrigger",
)
