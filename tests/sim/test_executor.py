"""The simulated executor: jobs run in order, in virtual time, and end with their process."""

from __future__ import annotations

import gc
import random
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

from storage.files.file_system import write_file
from testbed.fake_disk import FakeDisk
from testbed.sim import executor
from testbed.sim.executor import DiskPace, JobLock, SimExecutor, modules_with_locks
from testbed.sim.loop import SimLoop
from testbed.sim.process import Process, ProcessState


def a_disk(workers: int = 1) -> tuple[SimLoop, Process, DiskPace, SimExecutor]:
    loop, process, pace = SimLoop(random.Random(1)), Process("node-1"), DiskPace()
    return loop, process, pace, SimExecutor(loop, random.Random(2), process, pace, workers)


def test_one_worker_works_in_order_and_takes_time() -> None:
    loop, _, pace, executor = a_disk()
    worked: list[int] = []
    reported: list[object] = []

    def work(number: int) -> int:
        worked.append(number)
        return number

    for number in range(20):
        executor.submit(partial(work, number), reported.append)
    assert worked == []
    loop.run_for(1)
    assert worked == reported == list(range(20))
    assert pace.delay_us[0] * 20 < loop.now_us


def test_a_failure_is_reported_as_a_value() -> None:
    loop, _, _, executor = a_disk()
    reported: list[object] = []
    executor.submit(lambda: 1 // 0, reported.append)
    loop.run_for(1)
    assert isinstance(reported[0], ZeroDivisionError)


class Steps:
    """A disk that the jobs of a process call through a simulated machine."""

    def __init__(self, seed: int, workers: int = 1) -> None:
        self.loop, self.process, self.pace = SimLoop(random.Random(seed)), Process("node-1"), DiskPace()
        self.executor = SimExecutor(self.loop, random.Random(seed), self.process, self.pace, workers)
        self.disk = FakeDisk()
        self.disk.on_step = self._call
        self.disk.make_directory("/data")
        self.reported: list[object] = []

    @staticmethod
    def _call(operation: str, path: str) -> None:
        if executor.running is not None:
            executor.running.executor.calls(executor.running, operation, path)

    def write(self, path: str, text: bytes = b"new") -> None:
        """The calls of a file that is rewritten."""
        self.executor.submit(lambda: write_file(self.disk, path, text), self.reported.append)

    def content(self, path: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return bytes(self.disk._file(path).seen.data)
        return None


def test_a_crash_may_fall_between_any_two_calls_of_the_disk() -> None:
    found = set()
    for seed in range(200):
        steps = Steps(seed)
        steps.write("/data/file")
        steps.loop.run_for(random.Random(seed).random() ** 3 * 0.01)
        steps.process.state = ProcessState.DEAD
        steps.loop.run_for(1)
        names = tuple(steps.disk.list("/data"))
        found.add((names, steps.content("/data/file.tmp"), len(steps.reported)))
        steps.executor.abandon()
    assert {
        ((), None, 0),
        (("file.tmp",), b"", 0),
        (("file.tmp",), b"new", 0),
        (("file",), None, 0),
        (("file",), None, 1),
    } <= found


def test_work_that_is_abandoned_in_the_middle_runs_no_further_line() -> None:
    gc.collect()
    gc.freeze()  # the collections below are of what this test makes, not of all that the process has imported
    try:
        for seed in range(50):
            steps = Steps(seed)
            ended: list[str] = []

            def work(steps: Steps = steps, ended: list[str] = ended) -> None:
                try:
                    steps.disk.sync_directory("/data")
                    steps.disk.sync_directory("/data")
                finally:
                    ended.append("over")

            steps.executor.submit(work, steps.reported.append)
            steps.loop.run_for(0.0001)
            steps.loop.run_for(0.0003)
            if ended:
                continue
            steps.process.state = ProcessState.DEAD
            gc.collect()
            steps.loop.run_for(1)
            assert ended == []
            steps.executor.abandon()
    finally:
        gc.unfreeze()


def test_callbacks_of_the_loop_run_between_the_calls_of_work() -> None:
    seen = set()
    for seed in range(40):
        steps = Steps(seed)
        steps.write("/data/file")
        steps.process.run(steps.loop.call_later, 0.002, lambda steps=steps: seen.add(tuple(steps.disk.list("/data"))))
        steps.loop.run_for(1)
        assert steps.reported == [None]
    assert seen >= {("file.tmp",), ("file",)}


def test_pieces_of_work_side_by_side_take_turns_with_the_disk() -> None:
    ends = set()
    for seed in range(60):
        steps = Steps(seed, workers=2)
        for text in (b"one", b"two"):
            steps.write("/data/file", text)
        steps.loop.run_for(1)
        ends.add((steps.content("/data/file"), sum(isinstance(each, OSError) for each in steps.reported)))
    assert {content for content, _ in ends} >= {b"one", b"two"}
    assert {failed for _, failed in ends} == {0, 1}, "two jobs that write one file under one name interfere"


def test_a_lock_keeps_work_side_by_side_apart_and_the_loop_waits_for_it() -> None:
    for seed in range(40):
        steps, lock = Steps(seed, workers=2), JobLock()
        order: list[str] = []

        def work(name: str, steps: Steps = steps, lock: JobLock = lock, order: list[str] = order) -> None:
            with lock:
                order.append(f"{name} begins")
                steps.disk.sync_directory("/data")
                order.append(f"{name} ends")

        def on_the_loop(lock: JobLock = lock, order: list[str] = order) -> None:
            with lock:
                order.append("loop")

        for name in ("a", "b"):
            steps.executor.submit(partial(work, name), steps.reported.append)
        steps.process.run(steps.loop.call_later, 0.001, on_the_loop)
        steps.loop.run_for(1)
        assert steps.reported == [None, None]
        order.remove("loop")
        assert order in (["a begins", "a ends", "b begins", "b ends"], ["b begins", "b ends", "a begins", "a ends"])


def test_hanging_files_block_only_their_users() -> None:
    steps = Steps(1, workers=2)
    steps.disk.make_directory("/more")
    steps.pace.hanging["/data/"] = frozenset({"sync"})
    steps.write("/data/file")
    steps.write("/more/file")
    steps.loop.run_for(10)
    assert steps.content("/more/file") == b"new"
    assert steps.content("/data/file") is None
    assert len(steps.reported) == 1
    steps.pace.hanging.clear()
    steps.executor.resume()
    steps.loop.run_for(1)
    assert steps.content("/data/file") == b"new"


def test_a_stuck_disk_reports_nothing_until_it_continues() -> None:
    loop, _, pace, executor = a_disk()
    reported: list[object] = []
    executor.submit(lambda: 1, reported.append)
    pace.stalled = True
    executor.submit(lambda: 2, reported.append)
    loop.run_for(10)
    assert reported == []
    pace.stalled = False
    executor.resume()
    loop.run_for(1)
    assert reported == [1, 2]


def test_a_disk_that_continues_does_nothing_for_an_ended_process() -> None:
    for seed in range(20):
        loop, process, pace = SimLoop(random.Random(1)), Process("node-1"), DiskPace(stalled=True)
        executor = SimExecutor(loop, random.Random(seed), process, pace)
        worked: list[str] = []
        executor.submit(lambda worked=worked: worked.append("x"), lambda _: None)  # type: ignore[misc]
        process.state = ProcessState.DEAD
        pace.stalled = False
        executor.resume()
        loop.run_for(1)
        assert worked == []


def test_work_submitted_by_other_work_ends_too() -> None:
    """Loading a directory submits the removal of deleted logs' remains. That job once took the turns of the first
    one, and neither ended (worlds 229484366 and 229484479)."""
    for seed in range(20):
        steps = Steps(seed)
        other = SimExecutor(steps.loop, random.Random(seed), steps.process, steps.pace)

        def asks_for_more(steps: Steps = steps, other: SimExecutor = other) -> None:
            write_file(steps.disk, "/data/one", b"1")
            other.submit(lambda: write_file(steps.disk, "/data/two", b"2"), steps.reported.append)
            write_file(steps.disk, "/data/three", b"3")

        steps.executor.submit(asks_for_more, steps.reported.append)
        steps.loop.run_for(2)
        assert steps.reported == [None, None]
        assert [steps.content(f"/data/{name}") for name in ("one", "two", "three")] == [b"1", b"2", b"3"]


def test_every_lock_of_storage_and_remote_reads_is_simulated() -> None:
    """A real lock, held by work that waits for the simulated disk, stops the simulator for good."""
    root = Path(__file__).parent.parent.parent
    files = [path for folder in ("storage", "tidelog/tiering") for path in sorted((root / folder).rglob("*.py"))]
    threaded = [path for path in files if "threading" in path.read_text(encoding="utf-8")]
    assert all("from threading import Lock\n" in path.read_text(encoding="utf-8") for path in threaded)
    names = [".".join(path.relative_to(root).with_suffix("").parts) for path in threaded]
    assert [import_module(name) for name in names] == modules_with_locks() != []
