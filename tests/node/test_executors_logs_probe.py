"""Thread executors, log lines, and the health service with its probe."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from node.boundary.boundary import Boundary
from node.listeners.grpc.health import Health
from node.listeners.grpc.server import GrpcServer
from node.observability import logs
from node.process import probe
from node.runtime.thread_executor import ThreadExecutor, WorkPanicked
from node.runtime.work import run_in, run_while_awaited
from tests.node.later_executor import Later
from tidelog.types import Endpoint


async def test_work_is_done_in_order_on_one_thread_and_reported_on_the_loop() -> None:
    executor, here = ThreadExecutor("directory"), threading.get_ident()
    order: list[int] = []
    reported: list[int] = []
    workers = set()

    def work(number: int) -> int:
        order.append(number)
        workers.add(threading.get_ident())
        return threading.get_ident()

    for number in range(50):
        executor.submit(lambda number=number: work(number), lambda _: reported.append(threading.get_ident()))  # type: ignore[misc]
    await run_in(executor, lambda: None)
    assert order == list(range(50))
    assert len(workers) == 1
    assert here not in workers
    assert set(reported) == {here}
    executor.close()


async def test_failed_work_raises_in_its_caller() -> None:
    executor = ThreadExecutor("directory")
    with pytest.raises(ZeroDivisionError):
        await run_in(executor, lambda: 1 // 0)
    assert await run_in(executor, lambda: "still works") == "still works"
    executor.close()


class PanicException(BaseException):
    """As that of libraries in Rust: not an Exception."""


@pytest.mark.parametrize("end", [PanicException("out of range"), SystemExit("out of range"), StopIteration()])
async def test_a_panic_of_a_library_is_an_error_of_its_caller_and_the_worker_continues(end: BaseException) -> None:
    """It ended the only worker: its caller and all callers after it waited for ever."""
    executor = ThreadExecutor("store")

    def panic() -> None:
        raise end

    with pytest.raises(WorkPanicked, match=f"ended with {type(end).__name__}: {end}") as raised:
        await run_in(executor, panic)
    assert raised.value.__cause__ is end
    assert await run_in(executor, lambda: "still works") == "still works"
    executor.close()


async def test_work_of_a_caller_that_has_left_is_not_begun_and_holds_nothing() -> None:
    """Producers that sent compressed records and went away filled the memory with requests that waited for a thread."""
    executor, begun = Later(), list[set[str]]()
    records = set[str]()
    held = weakref.ref(records)
    submitted = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        leaves = tasks.create_task(run_while_awaited(executor, partial(begun.append, records)))
        tasks.create_task(run_while_awaited(executor, partial(begun.append, {"wanted"})))
        asyncio.get_running_loop().call_soon(submitted.set)
        await submitted.wait()
        del records
        leaves.cancel()
        await asyncio.wait([leaves])
        del leaves
        assert (held(), len(executor.work)) == (None, 2)
        executor.run()
    assert begun == [{"wanted"}]


async def test_an_exception_of_a_callback_is_reported() -> None:
    def broken(_result: object) -> None:
        raise ZeroDivisionError

    defects: list[Exception] = []
    executor = ThreadExecutor("directory", on_defect=defects.append)
    executor.submit(lambda: 1, broken)
    assert await run_in(executor, lambda: "the worker continues") == "the worker continues"
    assert [type(defect) for defect in defects] == [ZeroDivisionError]
    executor.close()


async def test_close_finishes_submitted_work() -> None:
    finished = []
    executor = ThreadExecutor("pool", workers=3)
    for number in range(20):
        executor.submit(lambda number=number: finished.append(number), lambda _: None)  # type: ignore[misc]
    executor.close()
    assert sorted(finished) == list(range(20))


async def test_a_piece_of_work_wakes_one_worker() -> None:
    """With several workers that wait at one queue, each piece wakes a second one that finds nothing."""
    executor = ThreadExecutor("pool", workers=8)
    idle, may_end = executor._idle, threading.Event()

    def occupy(began: threading.Event) -> None:
        began.set()
        may_end.wait()

    while len(idle) < 8:
        await run_in(executor, lambda: None)
    for busy in range(1, 9):
        last, began = idle[-1], threading.Event()
        executor.submit(lambda began=began: occupy(began), lambda _: None)  # type: ignore[misc]
        began.wait()
        assert len(idle) == 8 - busy
        assert last not in idle, "the worker that went idle last is still warm"
    extra = run_in(executor, lambda: "was queued while all workers were busy")
    may_end.set()
    assert await extra == "was queued while all workers were busy"
    executor.close()


async def test_no_work_is_left_behind_when_workers_go_idle_while_it_arrives() -> None:
    executor = ThreadExecutor("pool", workers=3)
    done = 0
    for _ in range(2_000):
        done += await run_in(executor, lambda: 1)
    for _ in range(500):
        done += sum(await asyncio.gather(*(run_in(executor, lambda: 1) for _ in range(4))))
    assert done == 4_000
    executor.close()


@pytest.fixture
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.mark.usefixtures("root_logger")
def test_log_lines_carry_their_fields() -> None:
    text, lines = io.StringIO(), io.StringIO()
    for style, stream in (("text", text), ("json", lines)):
        logs.configure(style=style, level="info", node_id=3, stream=stream)
        log = logging.getLogger("node.story")
        log.info("leads\nnow", extra={"topic": "orders", "why": "old leader gone"})
        log.debug("not shown")
        try:
            raise ValueError("why")
        except ValueError:
            log.exception("failed")
    first, second, *traceback = text.getvalue().splitlines()
    assert first.endswith('info    node.story node=3: leads\\nnow topic=orders why="old leader gone"')
    assert second.endswith("error   node.story node=3: failed")
    assert traceback[-1] == "    ValueError: why"
    objects = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert len(objects) == 2
    assert objects[0]["message"] == "leads\nnow"
    assert (objects[0]["node"], objects[0]["topic"], objects[0]["level"]) == (3, "orders", "info")
    assert "ValueError: why" in objects[1]["traceback"]


FORGED = (
    "x\n2026-01-01 00:00:00.000 info node.process: stopped",
    "x\r\x1b[2K\x1b[31mred\x1b]0;title\x07",
    "x\u2028y\u2029z\x85\x0b\x0c\x1c",
    "x\u202ecod.\u2066\u200b",
    "x\x00\x7f\x9b31m",
    "\ud800",
    'x" level="error',
)


@pytest.mark.usefixtures("root_logger")
@pytest.mark.parametrize("name", FORGED, ids=range(len(FORGED)))
def test_a_name_that_a_caller_chose_cannot_forge_a_line_or_control_a_terminal(name: str) -> None:
    text, lines = io.StringIO(), io.StringIO()
    for style, stream in (("text", text), ("json", lines)):
        logs.configure(style=style, level="info", node_id=3, stream=stream)
        logging.getLogger("node.story").warning("no topic %s", name, extra={"topic": name})
        assert stream.getvalue().count("\n") == 1
        assert len(stream.getvalue().splitlines()) == 1, "for readers that know more ends of lines"
        assert stream.getvalue()[:-1].isprintable()
    (line,) = lines.getvalue().splitlines()
    assert json.loads(line)["message"] == f"no topic {name}"
    assert json.loads(line)["topic"] == name


@pytest.mark.usefixtures("root_logger")
def test_the_message_of_an_exception_cannot_forge_a_line_either() -> None:
    text = io.StringIO()
    logs.configure(style="text", level="info", stream=text)
    try:
        raise ValueError("x\n2026-01-01 info node.process: stopped\x1b[2K")
    except ValueError:
        logging.getLogger("node.story").exception("failed")
    first, *others = text.getvalue().split("\n")[:-1]
    assert first.endswith("failed")
    assert all(line.startswith("    ") and line.isprintable() for line in others)


@pytest.mark.usefixtures("root_logger")
def test_a_line_that_quotes_a_long_name_is_cut() -> None:
    for style in ("text", "json"):
        stream = io.StringIO()
        logs.configure(style=style, level="info", stream=stream)
        logging.getLogger("node.story").warning("no topic %s", "x" * 1_000_000)
        assert len(stream.getvalue()) < 10_000


async def test_a_probe_distinguishes_alive_and_ready(capfd: pytest.CaptureFixture[str]) -> None:
    server, health = GrpcServer("client", boundary=Boundary()), Health(())
    address = server.bind(Endpoint("127.0.0.1", 0))
    server.serve_health(health.servicer)
    health.alive()
    await server.start()
    prober = ThreadExecutor("prober")
    seen = []
    for is_ready in (False, True, False):
        health.ready(is_ready=is_ready)
        alive = await run_in(prober, lambda: probe.main([str(address)]))
        seen.append((alive, await run_in(prober, lambda: probe.main(["--ready", str(address)]))))
    caught_up = []
    for change in (partial(health.ready, is_ready=True), health.caught_up, partial(health.ready, is_ready=False)):
        change()
        caught_up.append(await run_in(prober, lambda: probe.main(["--caught-up", str(address)])))
    assert caught_up == [1, 0, 1], "ready is not enough, and a node that is being stopped is not caught up"
    await server.stop(0)
    seen.append((await run_in(prober, lambda: probe.main([str(address)])), 1))
    prober.close()
    assert seen == [(0, 1), (0, 0), (0, 1), (1, 1)]
    out, err = capfd.readouterr()
    assert "is alive" in out
    assert "is caught up" in out
    assert "is not caught up" in err
    assert "is not ready" in err
    assert "no connection" in err
    assert "If it has TLS, name --tls-ca." in err
