"""Shared by all tests: what this machine can run, which worker runs which test (balance.py), and what each takes
(durations.py)."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import inspect
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests import durations
from tests.balance import BalancedScheduling
from tests.node.chromium import browser_path
from tests.wheels import build_wheel
from tidelog.grpc_environment import set_defaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

set_defaults(os.environ)  # as tidelog does, for test modules that import grpc first
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
# Spark's JVMs live for seconds: without the second compiler and threads of the collector they take half the time.
for each in ("SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
    os.environ.setdefault(each, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: its children would ignore it too
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An example's time says how busy the machine is: Hypothesis is not to call a test slow, or flaky, for that.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

NEEDS_SOMETHING = ("browser", "containers", "interop", "k8s", "spark")

SUMMARY_ABOVE_S = 60
COROUTINE_S = 60
"""A test that is a coroutine fails after it, rather than end the whole run, as pytest-timeout does."""
RUN = durations.Run()
SHARED_S = pytest.StashKey[float]()


@cache
def missing(marker: str) -> str | None:
    """What this machine lacks for tests of that marker, with what brings it; None where it lacks nothing."""
    if marker == "spark" and not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        return "no Java 17 (Debian: apt install openjdk-17-jre-headless)"
    if marker == "browser" and browser_path() is None:
        return "THE WEB CONSOLE IS NOT TESTED IN A BROWSER: no Chromium (Debian: apt install chromium-headless-shell)"
    if marker == "containers" and not answers("docker", "info"):
        return "no Docker engine answers (Debian: apt install docker.io)"
    if marker == "interop" and not os.environ.get("TIDELOG_KAFKA_LIBS"):
        return "make interop fetches Apache Kafka and runs them"
    if marker == "k8s" and not os.environ.get("KUBECONFIG"):
        return "KUBECONFIG names no cluster"
    return None


def answers(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return (
        subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=30, check=False).returncode == 0
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help="renew tests/durations.json from this run")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BalancedScheduling:
    return BalancedScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if unnamed := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        # The workers of one run would collect different tests, and none would be run.
        raise pytest.UsageError(f"an object's address names a case of {unnamed[0]}: give parametrize `ids`")


def pytest_collection_finish() -> None:
    gc.freeze()  # modules and 10,000 tests: a collection would visit them all and find nothing


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in NEEDS_SOMETHING:
        if item.get_closest_marker(marker) and (reason := missing(marker)):
            pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """An `async def test_...` runs on the loop of its fixture `loop`, or else on a new one."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return
    loop = pyfuncitem.funcargs.get("loop")
    # Only tests of real processes take longer: their limit is the one of pytest-timeout, which ends the whole run.
    limit_s = None if pyfuncitem.get_closest_marker("integration") else COROUTINE_S

    async def limited(**fixtures: object) -> None:
        async with asyncio.timeout(limit_s):
            await test(**fixtures)

    def run(**fixtures: object) -> None:
        if isinstance(loop, asyncio.AbstractEventLoop):
            loop.run_until_complete(test(**fixtures))  # its time may jump, so that it has no limit
        else:
            asyncio.run(limited(**fixtures))

    pyfuncitem.obj = run


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Notes what a test pays for others: a cluster or a session that a whole file, or all files, share."""
    if fixturedef.scope == "function":
        return (yield)
    begun = perf_counter()
    try:
        return (yield)
    finally:
        stash = request.session.stash
        stash[SHARED_S] = stash.get(SHARED_S, 0.0) + perf_counter() - begun


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "setup" and (shared := item.session.stash.get(SHARED_S, 0.0)):
        report.user_properties.append((durations.SHARED, shared))
        item.session.stash[SHARED_S] = 0.0
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    RUN.add(report)
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        # At once, as pytest's summary comes at the end, which a run that is killed does not reach.
        print(f"\nfailed: {report.nodeid} ({report.when})", flush=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if RUN.seconds() > SUMMARY_ABOVE_S:
        terminalreporter.section("durations")
        for line in RUN.summary():
            terminalreporter.write_line(line)
    if config.getoption("record_durations"):
        files = {str(path.relative_to(config.rootpath)) for path in config.rootpath.glob("tests/**/*.py")}
        durations.read().renewed(RUN.durations(), files).write()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The wheel of this checkout. The first worker that needs it builds it, which takes half a minute."""
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent
    with (shared / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for built in shared.glob("*.whl"):
            return built
        return Path(shutil.copy(build_wheel(tmp_path_factory.mktemp("wheel")), shared))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a test run: tests that use it are marked `spark`."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.appName("tidelog-tests")
        .master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", os.environ.get("TIDELOG_ICEBERG_JAR", ""))
        .getOrCreate()
    )
    yield session
    session.stop()
