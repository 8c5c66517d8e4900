"""The examples of docs/testing.md are whole test files, of ten lines each, and pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.child_runs import WITHOUT_ENTRY_POINTS

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
EXAMPLES = [block for block in re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL) if "def test_" in block]
LINES_MAX = 13
"""Ten lines, and those of the coroutine that a simulated story plays."""

SHOP = """
import tidelog
from tidelog.errors import TidelogError

async def sell(bootstrap):
    async with tidelog.Producer(bootstrap, acks="all") as producer:
        for number in range(20):
            await producer.send("orders", b"order %d" % number)

async def bill(bootstrap):
    while True:
        try:
            async with (
                tidelog.Consumer(
                    bootstrap, group="billing", topics=["orders"], isolation="read_committed",
                    auto_offset_reset="earliest", auto_commit=False,
                ) as consumer,
                tidelog.Producer(bootstrap, transactional_id="billing", transaction_timeout_ms=5_000) as producer,
            ):
                while True:
                    if records := await consumer.poll(timeout=0.5):
                        async with producer.transaction() as transaction:
                            for record in records:
                                await producer.enqueue("invoices", b"invoice of " + record.value)
                            await transaction.send_offsets(consumer)
        except TidelogError:
            pass
"""


def passes(directory: Path, example: str) -> None:
    (directory / "test_example.py").write_text(example, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tidelog.testing.plugin", "--tidelog-seeds", "2"]
    done = subprocess.run(
        command, cwd=directory, env=WITHOUT_ENTRY_POINTS, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_three_and_a_pipeline() -> None:
    assert len(EXAMPLES) == 4
    sizes = [sum(bool(line.strip()) for line in example.splitlines()) for example in EXAMPLES]
    assert max(sizes) <= LINES_MAX


@pytest.mark.integration
def test_the_cluster_of_the_document_loses_its_leader(tmp_path: Path) -> None:
    passes(tmp_path, EXAMPLES[0])


def test_the_node_of_the_document_answers(tmp_path: Path) -> None:
    passes(tmp_path, EXAMPLES[1])


def test_the_simulated_story_of_the_document_passes(tmp_path: Path) -> None:
    passes(tmp_path, EXAMPLES[2])


@pytest.mark.deep
def test_the_pipeline_of_the_document_passes(tmp_path: Path) -> None:
    """Ten seconds and more: its worker is killed in the middle of transactions."""
    passes(tmp_path, SHOP + EXAMPLES[3])
