"""One answer to the fetches of a session: its records, and the memory that they occupy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from node.requests.fetch_session import FetchSession
from node.runtime.memory_budget import AnswerCharge, MemoryBudget
from tidelog.record_exchange import FetchAnswer, FetchedPartition


async def add_next(
    answer: FetchAnswer,
    charge: AnswerCharge,
    session: FetchSession,
    memory: MemoryBudget,
    wanted: int,
    enough: int,
    least: int,
    room: int | None = None,
    ensure_wanted: Callable[[], None] = lambda: None,
) -> None:
    """Add answers that are due: with `wanted` bytes of records if the memory budget allows, but at least `least`;
    stop at `enough` bytes. room: as for `FetchSession.collect`. While this answer or a disk read of the session
    occupies memory, it does not wait for memory that other requests occupy, which could be a deadlock. ensure_wanted:
    called after such a wait; raises the reason if the answer is not wanted any more."""
    kind, copies = session.kind, session.copies
    if session.outbox.read or not least:
        charge.add(session.collect_read(answer.partitions, enough, room), memory.charge(kind, 0))
        return
    if room is not None and room <= 0:
        share = memory.charge(kind, 0)
    elif charge.size or session.outbox.reads:
        share = memory.take_now(kind, copies * wanted, copies * least)
        if not share.size and session.outbox.reads:
            await session.wait_cold()
            return
    else:
        share = await memory.take(kind, copies * wanted, copies * least)
        try:
            ensure_wanted()
        except BaseException:
            share.release()
            raise
    granted = share.size // copies
    enough = min(enough, granted - least) if granted else enough
    room = granted if room is None else min(granted, room)
    charge.add(session.collect(answer.partitions, enough, room), share)


def limited(answers: Sequence[FetchedPartition], limit: int) -> list[FetchedPartition]:
    """The answers without the records that exceed the limit, but with those of the first that has any: a batch is
    returned whole, and a reader of a large one would not advance otherwise (KIP-74)."""
    within, size = [], 0
    for answer in answers:
        fits = not size or size + len(answer.records) <= limit
        within.append(answer if fits else answer._replace(records=b"", aborted=()))
        size += len(within[-1].records)
    return within
