"""A log with one record per batch over several segments."""

from __future__ import annotations

from tests.storage.workbench import NOW, Bench, stamped


def filled(upto: int = 100, epoch: int = 1, bench: Bench | None = None) -> Bench:
    """One record per batch, offsets up to `upto`, over several segments, all of it flushed."""
    bench = bench or Bench()
    bench.follow(*(stamped(i, b"old %03d" % i, epoch=epoch, timestamp=NOW + i) for i in range(upto)))
    bench.commit()
    assert bench.log.durable_offset == upto
    return bench


def values(bench: Bench) -> list[bytes]:
    return [data[-8:-1] for data in bench.contents()]
