"""Kafka Streams counts words exactly once (EOS v2), though it is killed in the middle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from tests.kafka_ecosystem.programs import (
    HERE,
    Failed,
    Row,
    committed,
    jars_missing,
    java,
    outcome,
    running,
    wait_until,
    write,
)
from tests.kafka_suites.suite import Effort, Nodes, Outcome, Suite

_WORDS_OF_A_LINE: Final = 5
_WORDS: Final = tuple(f"word-{number}" for number in range(97))


def _run(cluster: Nodes, home: Path, effort: Effort) -> Iterator[Outcome]:
    yield outcome("word count, exactly once, killed in the middle", lambda: _count(cluster, home, effort))


def _count(cluster: Nodes, home: Path, effort: Effort) -> None:
    words = list(islice(cycle(_WORDS), effort.records - effort.records % _WORDS_OF_A_LINE))
    lines = [" ".join(words[at : at + _WORDS_OF_A_LINE]) for at in range(0, len(words), _WORDS_OF_A_LINE)]
    half = len(lines) // 2
    log = home / "word-count.log"
    command = java(HERE / "WordCount.java", cluster.kafka_bootstrap, "lines", "counts", str(home / "state"))

    write(cluster, "lines", lines[:half])
    with running(command, log) as process:
        wait_until(lambda: bool(committed(cluster, "counts")), process, log)
        write(cluster, "lines", lines[half:])
        process.kill()
    with running(command, log) as process:
        wait_until(lambda: len(committed(cluster, "counts")) >= len(words), process, log)
    wrong = _wrong(words, committed(cluster, "counts"))
    if wrong:
        raise Failed(wrong)


def _wrong(words: list[str], counts: list[Row]) -> str:
    """How it differs from counting each word once, where each count of a word follows the one before; empty: not."""
    seen: Counter[str] = Counter()
    for word, count in counts:
        seen[word] += 1
        if int(count) != seen[word]:
            return f"{word} is counted {count} where {seen[word]} is its turn"
    return "" if seen == Counter(words) else f"{len(words)} words, {seen.total()} counts"


STREAMS: Final = Suite("streams", jars_missing, _run, ("lines", "counts"))
