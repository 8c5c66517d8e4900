"""The matrix of clients and features: what drivers print, and the table in docs/kafka.md.

A driver prints one line of JSON for each feature: {"feature": ..., "result": ..., "note": ...}. Other lines are
diagnostics. A feature that it does not name has failed: the driver ended before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

BEGIN: Final = "<!-- clients: make kafka-clients -->"
END: Final = "<!-- clients: end -->"
NOTE_LENGTH_MAX: Final = 150

FEATURES: Final[Mapping[str, str]] = {
    "codecs": "codecs",
    "acks": "acks",
    "idempotence": "idempotent",
    "transactions": "transactions",
    "offsets": "with offsets",
    "classic": "classic group",
    "consumer": "KIP-848 group",
    "headers": "headers",
    "timestamps": "timestamps",
    "admin": "admin",
    "scram": "SCRAM, TLS",
    "plain": "PLAIN, TLS",
    "oauthbearer": "OAUTHBEARER, TLS",
    "certificate": "mutual TLS",
}
"""Names in the lines of drivers, and heads of the table's columns."""


class Result(StrEnum):
    """The result of a feature; also the text in the table."""

    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    """The client does not have the feature."""


_SHOWN: Final = {Result.PASSED: "yes", Result.FAILED: "**no**", Result.UNSUPPORTED: "–"}


class BadReport(Exception):
    """A driver printed a line of JSON that is no report of a feature."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One feature of one client. note: why it is not supported or has failed; may be empty."""

    result: Result
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One client. absent: why it is not to be had here; empty if it ran."""

    client: str
    version: str
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    absent: str = ""

    @property
    def has_failed(self) -> bool:
        return any(each.result is Result.FAILED for each in self.outcomes.values())


def outcomes_of(lines: Iterable[str], end: str) -> dict[str, Outcome]:
    """The outcome of every feature from the lines that a driver printed. end: how it ended, the note of those that it
    does not name. Raises BadReport."""
    outcomes: dict[str, Outcome] = {}
    for line in lines:
        if not line.startswith("{"):
            continue
        try:
            report = json.loads(line)
            name, outcome = report["feature"], Outcome(Result(report["result"]), _short(report.get("note", "")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadReport(f"{line.strip()!r} reports no feature: {error}") from error
        if name not in FEATURES or name in outcomes:
            raise BadReport(f"{line.strip()!r} names a feature that is unknown or was reported before")
        outcomes[name] = outcome
    return {name: outcomes.get(name) or Outcome(Result.FAILED, _short(end)) for name in FEATURES}


def _short(note: str) -> str:
    """On one line, and without what ends a cell of a table."""
    words = " ".join(note.replace("|", "/").replace("<", "(").replace(">", ")").split())
    return words if len(words) <= NOTE_LENGTH_MAX else f"{words[:NOTE_LENGTH_MAX]}..."


def table_of(rows: Sequence[Row]) -> str:
    """The table in Markdown, with the notes below it; each note has a number."""
    notes: list[str] = []

    def noted(text: str, note: str) -> str:
        if not note:
            return text
        if note not in notes:
            notes.append(note)
        return f"{text} ({notes.index(note) + 1})"

    lines = [f"| client | version | {' | '.join(FEATURES.values())} |", "|---" * (2 + len(FEATURES)) + "|"]
    for row in rows:
        cells = [noted(_SHOWN[row.outcomes[name].result], row.outcomes[name].note) for name in row.outcomes]
        if row.absent:
            cells = [noted("not to be had", row.absent), *[""] * (len(FEATURES) - 1)]
        lines.append(f"| {row.client} | {row.version} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]).rstrip()


def replace_table(document: str, table: str) -> str:
    """The document with this table between its markers. Raises ValueError if it does not have both, in order."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document does not have the markers {BEGIN} and {END}")
    return f"{before}{begin}\n{table}\n\n{end}{after}"
