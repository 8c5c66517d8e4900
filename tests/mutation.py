"""How many faults in the product the first tier notices: random lines are changed, one at a time.

    python -m tests.mutation --lines 200 --seed 1                          in a copy of this checkout
    python -m tests.mutation --lines 200 --seed 1 --checkout DIRECTORY     in a copy of another one, with its own tests
    python -m tests.mutation ... --minutes 60 --outcomes FILE              continues what FILE has, for an hour at most

A mutation turns a comparison or a condition round, changes a number, or removes a statement, of a random line of the
product. The tests that depend on its file run then, nearest first, until one fails: the mutation was noticed. What no
test notices within the limit survived; it may also be one that changes nothing that matters.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests import durations
from tests.changed import ROOT, direct_users, distances, is_test, repository
from tests.durations import Durations
from tidelog.clock import MachineClock

PRODUCT: Final = ("tidelog/", "pyspark_tidelog/", "storage/", "replication/", "node/")
GENERATED: Final = ("tidelog/protocol/v1/", "tidelog/protocol/kafka/messages/")
FIRST_TIER: Final = "not deep and not containers and not interop and not k8s"
AREAS: Final = {"tidelog/cli": "client", "pyspark_tidelog": "spark"}
"""The folder of tests of a folder of the product, where it has another name."""
NOT_COPIED: Final = (".git", ".venv", "build", "dist", "*-out", ".*_cache", ".hypothesis", "__pycache__")
NO_TESTS: Final = 5
"""The exit code of pytest if none was selected."""
OPPOSITE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of one expression or statement of a file."""

    file: str
    line: int
    what: str
    start: int
    """Where it is, as offsets in the encoded text."""
    end: int
    text: str
    """What takes its place."""

    @property
    def key(self) -> tuple[str, int, str]:
        return self.file, self.line, self.what


@dataclass(frozen=True, slots=True)
class Outcome:
    file: str
    line: int
    what: str
    noticed_by: str
    """The test that failed; empty: none did."""
    seconds: float
    in_time: bool
    """Whether all tests were run, or one failed, before the limit."""

    def __str__(self) -> str:
        ending = self.noticed_by or ("SURVIVED" if self.in_time else "not noticed within the limit")
        return f"{self.file}:{self.line} {self.what[:160]}: {ending} ({self.seconds:.0f} s)"


def mutations_of(file: str, source: str) -> list[Mutation]:
    """All that can be changed in a file, in the order of its text."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    left_alone, tested = set(_left_alone(tree)), set(_conditions(tree))
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr | ast.stmt) or id(node) in left_alone:
            continue
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        text = changed(node, is_condition=id(node) in tested)
        if text is not None:
            what = " ".join(f"{ast.unparse(node)} becomes {text}".split())
            found.append(Mutation(file, node.lineno, what, start, end, text))
    return sorted(found, key=lambda each: (each.start, each.end))


def _left_alone(tree: ast.Module) -> Iterator[int]:
    """Annotations, documentation, texts, imports and what only type checkers read."""
    for node in ast.walk(tree):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if part is not None:
                yield from map(id, ast.walk(part))
        if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ):
            yield from map(id, ast.walk(node))


def _conditions(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield id(node.test)


def changed(node: ast.expr | ast.stmt, *, is_condition: bool) -> str | None:
    """The text that takes the place of an expression or statement; None if it stays."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in OPPOSITE:
            return f"({ast.unparse(ast.Compare(node.left, [OPPOSITE[type(operator)]()], node.comparators))})"
        case ast.BoolOp(op=operator):
            return f"({ast.unparse(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), node.values))})"
        case ast.UnaryOp(op=ast.Not()):
            return f"({ast.unparse(node.operand)})"
        case ast.expr() if is_condition:
            return f"(not {ast.unparse(node)})"
        case ast.Constant(value=bool(value)):
            return str(not value)
        case ast.Constant(value=int(number)):
            return str(number + 1)
        case ast.Return(value=ast.expr()):
            return "return None"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            return "pass"
    return None


def chosen(sources: Mapping[str, str], lines: int, seed: int) -> list[Mutation]:
    """Random lines of the product, each with one of its mutations."""
    rng = random.Random(seed)
    by_line: dict[tuple[str, int], list[Mutation]] = defaultdict(list)
    for file, text in sorted(sources.items()):
        if file.startswith(PRODUCT) and not file.startswith(GENERATED) and file.endswith(".py"):
            for mutation in mutations_of(file, text):
                by_line[file, mutation.line].append(mutation)
    places = rng.sample(sorted(by_line), min(lines, len(by_line)))
    return [rng.choice(by_line[place]) for place in places]


def users_of(file: str, users: Mapping[str, set[str]], record: Durations) -> list[str]:
    """The tests that depend on the file: those of its area first, then the nearest, then the shortest. users: the files
    that need a file directly."""
    parts = file.split("/")
    folder = "/".join(parts[:2]) if parts[0] == "tidelog" else parts[0]
    area = f"tests/{AREAS.get(folder, folder.split('/')[-1])}/"
    far = {test: distance for test, distance in distances([file], users).items() if is_test(test)}
    seconds: dict[str, float] = defaultdict(float)
    for test, _, entry in record.entries("test"):
        seconds[test] += entry.seconds
    return sorted(far, key=lambda test: (not test.startswith(area), far[test], seconds[test]))


class Copy:
    """A copy of a checkout, in which one line at a time is changed."""

    def __init__(self, checkout: Path, directory: Path) -> None:
        self._root = directory / "copy"
        shutil.copytree(checkout, self._root, ignore=shutil.ignore_patterns(*NOT_COPIED))
        self._clock = MachineClock()
        self._environment = {**os.environ, "PYTHONPATH": str(self._root), "PYTHONDONTWRITEBYTECODE": "1"}

    def outcome(self, mutation: Mutation, tests: Sequence[str], limit_s: float) -> Outcome:
        path = self._root / mutation.file
        source = path.read_bytes()
        begun = self._clock.monotonic_ms()
        path.write_bytes(source[: mutation.start] + mutation.text.encode() + source[mutation.end :])
        try:
            code, output = self._run(tests, limit_s) if tests else (0, "")
        finally:
            path.write_bytes(source)
        seconds = (self._clock.monotonic_ms() - begun) / 1000
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        noticed_by = "" if code in (None, 0, NO_TESTS) else failed[1] if failed else f"the run ended with {code}"
        return Outcome(mutation.file, mutation.line, mutation.what, noticed_by, seconds, code is not None)

    def _run(self, tests: Sequence[str], limit_s: float) -> tuple[int | None, str]:
        """The exit code of pytest, None if it was not finished in time; what it wrote."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", FIRST_TIER, *tests]
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as output,
            subprocess.Popen(
                command,
                cwd=self._root,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                with suppress(ProcessLookupError):  # nothing is left of the group
                    os.killpg(process.pid, signal.SIGKILL)
            output.seek(0)
            return process.returncode, output.read()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--lines", type=int, default=200, help="how many lines to change (200)")
    parser.add_argument("--seed", type=int, default=1, help="which lines (1)")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="a checkout with compiled modules (this one)")
    parser.add_argument("--limit", type=float, default=300, help="seconds of tests for each line (300)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no further line after so long")
    parser.add_argument("--outcomes", type=Path, help="a file of outcomes: those in it are not run again")
    given = parser.parse_args(arguments)
    clock = MachineClock()
    end = clock.monotonic_ms() + given.minutes * 60_000
    sources = repository(given.checkout)
    record = durations.read(given.checkout / "tests" / durations.RECORD.name)
    mutations = chosen(sources, given.lines, given.seed)
    known = read(given.outcomes)
    users = direct_users(sources)
    with tempfile.TemporaryDirectory(prefix="tidelog-mutation-") as directory:
        copy = Copy(given.checkout, Path(directory))
        for number, mutation in enumerate(mutations, 1):
            if mutation.key in known:
                continue
            if clock.monotonic_ms() > end:
                break
            outcome = copy.outcome(mutation, users_of(mutation.file, users, record), given.limit)
            known[mutation.key] = outcome
            print(f"{number}/{len(mutations)} {outcome}", flush=True)
            if given.outcomes is not None:
                with given.outcomes.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
    print(summary([known[each.key] for each in mutations if each.key in known]))
    return 0


def read(path: Path | None) -> dict[tuple[str, int, str], Outcome]:
    if path is None or not path.exists():
        return {}
    outcomes = (Outcome(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())
    return {(each.file, each.line, each.what): each for each in outcomes}


def summary(outcomes: Sequence[Outcome]) -> str:
    noticed = sum(bool(each.noticed_by) for each in outcomes)
    unfinished = sum(not each.in_time for each in outcomes)
    return (
        f"{noticed} of {len(outcomes)} changed lines were noticed ({noticed / max(len(outcomes), 1):.0%}), "
        f"{len(outcomes) - noticed - unfinished} survived all tests that depend on them, {unfinished} those that ran "
        "within the limit"
    )


if __name__ == "__main__":
    sys.exit(main())
