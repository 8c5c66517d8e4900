"""Wrong command lines of jobs, and how jobs end: without Spark and without a cluster."""

from __future__ import annotations

import os
import re
import signal
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import sync
from tidelog.cli import main
from tidelog.cli.argument_values import WrongUsage
from tidelog.clock import MachineClock
from tidelog.errors import InvalidConfig
from tidelog.jobs import archive, audit, job_session, profile, restore, topic_table
from tidelog.jobs.archive import ArchiveProgress, _watch, text_of_schema
from tidelog.jobs.audit import PROGRESS_MS, AuditProgress, AuditReport, _report_lines
from tidelog.jobs.hadoop_files import local_path
from tidelog.jobs.job_arguments import interval, interval_ms, moment, whole_number
from tidelog.jobs.job_frame import Job, JobArguments, JobTerminated, sentence_of
from tidelog.jobs.job_session import spark_session
from tidelog.jobs.partition_audit import PartitionReport, ReplicaReport
from tidelog.jobs.replica_comparison import Difference
from tidelog.types import INT64_MAX, Millis, NodeId, Offset

JOBS: Any = {"archive": archive, "audit": audit, "profile": profile, "restore": restore, "table": topic_table}
NOWHERE = "127.0.0.1:1"
NO_SETTINGS: Any = Namespace(conf=[], master=None)
FROM, TO = ("--from", "a"), ("--to", "a")


@pytest.mark.parametrize(
    ("job", "arguments", "said"),
    [
        ("archive", ("t", *TO, "--start", "yesterday"), "--start: 'yesterday': use earliest, latest or milliseconds"),
        ("archive", ("t", *TO, "--start", "-5"), "--start: '-5': use earliest"),
        ("archive", ("t", *TO, "--trigger", "10 bananas"), "--trigger: '10 bananas' is no duration"),
        ("archive", ("t", *TO, "--trigger", "10seconds"), "--trigger: '10seconds' is no duration"),
        ("archive", ("t", *TO, "--trigger", "0.5 minutes"), "--trigger: '0.5 minutes' is no duration"),
        ("archive", ("t", *TO, "--trigger", "1.5 milliseconds"), "--trigger: '1.5 milliseconds' is no duration"),
        ("archive", (*TO, "--pattern", "("), "--pattern: '(' is not a regular expression of RE2 (missing"),
        ("archive", ("t", *TO, "--offsets-per-batch", "-3"), "--offsets-per-batch: '-3': use a whole number from 1"),
        ("archive", ("t", *TO, "--remote-storage", "yes"), "--remote-storage: option 'remoteStorage' is 'yes'"),
        (
            "profile",
            ("t", "--remote-storage", "ftp://a/b"),
            "is not the URL of an object store: use s3://BUCKET/PREFIX",
        ),
        ("archive", ("t", *TO, "--compression", "brotlix"), "--compression: invalid choice: 'brotlix'"),
        ("archive", ("t", *TO, "--keep-values"), "--keep-values belongs to --schema"),
        ("archive", TO, "name topics or --pattern, one of the two"),
        ("archive", ("t", *TO, "--pattern", "t.*"), "name topics or --pattern, one of the two"),
        ("archive", ("t", *TO, "--format", "iceberg"), "with --state"),
        ("archive", (*TO, "--files", "--format", "delta"), "--files is for Parquet"),
        ("archive", ("t", "--to", "/a[1]/b"), "--to /a[1]/b: Spark reads [ ] in a path as a pattern"),
        ("archive", ("t", "--to", "{a,b}"), "Spark reads { } in a path as a pattern"),
        ("archive", ("t", "--to", "file:/a*?", "--format", "delta"), "Spark reads * ? in a path as a pattern"),
        ("archive", ("t", *TO, "--conf", "nonsense"), "--conf: 'nonsense': write it as NAME=VALUE"),
        ("restore", ("t", *FROM, "--partition", "-1"), "--partition: '-1': use a whole number from 0"),
        ("restore", ("t", *FROM, "--start-offset", "10", "--end-offset", "2"), "--end-offset must be above --start"),
        ("restore", ("t", *FROM, "--start-time", "10", "--end-time", "10"), "--end-time must be above --start-time"),
        ("restore", ("t", *FROM, "--offsets-per-step", "0"), "--offsets-per-step: '0': use a whole number from 1"),
        ("restore", ("t", *FROM, "--compression", "brotlix"), "--compression: invalid choice"),
        ("restore", ("t", "u", *FROM, "--to-topic", "v"), "--to-topic is for one topic"),
        ("restore", ("t", *FROM, "--start-time", "noon"), "--start-time: 'noon' is no time"),
        ("restore", ("t", *FROM, "--start-time", "9" * 30), "--start-time: '999"),
        ("table", ("t", "--to", "orders"), "--to orders: name a table as CATALOG.NAMESPACE.TABLE"),
        ("table", ("t", "--to", "lake..orders"), "--to lake..orders: name a table as CATALOG.NAMESPACE.TABLE"),
        ("table", ("t", "--to", "l.s.t", "--once", "--trigger", "1 second"), "--trigger is for a job that goes on"),
        (
            "table",
            ("t", "--to", "l.s.t", "--value-format", "avro"),
            "--value-format and --schema-id belong to --schema",
        ),
        ("table", ("t", "--to", "l.s.t", "--message", "A"), "--message NAME belongs to --value-format protobuf"),
        ("profile", ("t", "--last", "-4"), "--last: '-4': use a whole number from 1"),
        ("profile", ("t", "--last", "0"), "--last: '0': use a whole number from 1"),
        ("audit", ("--patience-ms", "-5"), "--patience-ms: '-5': use a whole number from 1 to 2147483647"),
        ("audit", ("--patience-ms", "9" * 20), "--patience-ms: '999"),
    ],
)
def test_a_wrong_command_line_ends_with_2_in_its_own_words(
    job: str,
    arguments: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Spark cannot start here and no node answers: either would end with 1."""
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    assert JOBS[job].main([*arguments, "-b", NOWHERE]) == 2
    out, err = capsys.readouterr()
    assert said in err and not out
    assert main(["-b", NOWHERE, "job", job, *arguments]) == 2


def test_an_interval_is_one_of_spark() -> None:
    for text in (
        "10 seconds",
        "1 minute",
        "1.5 second",
        "interval 2 HOURS",
        "1 minute 0.25 seconds",
        "500  milliseconds",
    ):
        assert interval(f" {text} ") == text
    lengths = {
        "10 seconds": 10_000,
        "interval 2 HOURS": 7_200_000,
        "1 minute 0.25 seconds": 60_250,
        "1.5 second": 1_500,
    }
    assert {text: interval_ms(text) for text in lengths} == lengths


@given(st.text() | st.integers().map(str), st.integers(0, 9))
def test_a_whole_number_is_in_its_range_or_refused(text: str, least: int) -> None:
    parse = whole_number("--number", least=least).parser
    if re.fullmatch(r"\s*[+-]?\d+(_\d+)*\s*", text) and least <= int(text) <= INT64_MAX:
        assert parse(text) == int(text)
    else:
        with pytest.raises(WrongUsage, match=f"^--number: .*: use a whole number from {least} to "):
            parse(text)


@given(st.datetimes())
def test_a_time_is_exact_to_the_millisecond(found: datetime) -> None:
    """Before, one of 150 was a millisecond early: a restore had a record more at its start, and lacked one at its
    end."""
    parse = moment("--start-time", "").parser
    text = found.isoformat(timespec="milliseconds")
    whole = datetime.fromisoformat(f"{text}+00:00")
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=parse(text)) == whole
    assert parse("1987-02-09T18:26:42.397") == 539_893_602_397


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, "interrupted: it goes on"), (signal.SIGTERM, 143, "ended by SIGTERM: it goes on")],
)
def test_a_signal_ends_a_job_with_a_sentence(
    number: signal.Signals, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = []

    def work(_: JobArguments) -> int:
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            closed.append(True)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    assert Job("any", "", JobArguments, work, "it goes on").main([]) == code
    assert capsys.readouterr() == ("", f"tidelog job any: {said}\n")
    assert closed and signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), EOFError()])
def test_a_job_that_loses_the_jvm_ends_with_a_sentence(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def work(_: JobArguments) -> int:
        raise error

    assert Job("any", "", JobArguments, work, "").main([]) == 1
    assert "tidelog job any: the connection to Spark's JVM ended" in capsys.readouterr().err


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark seems to be installed; the tests end before it starts. Queries are not retried."""
    monkeypatch.setattr(job_session, "ensure_spark", lambda: pytest.fail("Spark starts"))
    for job in (archive, profile, restore):
        monkeypatch.setattr(job, "ensure_spark", lambda: None)
        monkeypatch.setattr(job, "Admin", partial(sync.Admin, patience_ms=0))


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize(
    ("job", "place", "target"), [("archive", "--to", "new"), ("restore", "--from", "."), ("profile", "--html", "new")]
)
def test_a_cluster_that_does_not_answer_is_named_before_spark_starts(
    job: str, place: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert JOBS[job].main(["orders", place, str(tmp_path / target), "-b", NOWHERE, "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == "", "with --json as well"
    assert NOWHERE in err and len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [], "no archive was begun"


ELSEWHERE = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT")


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has chosen a file system for Spark, and this process has no session."""
    pytest.importorskip("pyspark")
    for name in ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)


@pytest.mark.usefixtures("without_spark", "plain_environment")
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
@pytest.mark.parametrize(
    ("job", "arguments", "option"),
    [
        ("restore", ("orders", "--from", "{}"), "--from"),
        ("restore", ("orders", "--from", "a.table", "--state", "{}"), "--state"),
        ("archive", ("--verify", "--to", "{}"), "--to"),
        ("archive", ("--files", "--to", "{}"), "--to"),
    ],
)
def test_an_archive_that_is_absent_is_named_before_spark_starts_and_a_node_is_asked(
    job: str, arguments: tuple[str, ...], option: str, scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = tmp_path / "absent"
    given = [each.format(f"{scheme}{absent}") for each in arguments]
    assert JOBS[job].main([*given, "-b", NOWHERE]) == 1
    out, err = capsys.readouterr()
    assert err.startswith(f"tidelog job {job}: {option} {scheme}{absent}: there is no directory {absent}; name the one")
    assert not out


@pytest.mark.usefixtures("plain_environment")
def test_only_a_path_that_is_surely_on_this_machine_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_path("a/b:c", []) == Path("a/b:c")
    assert local_path("/a b", [("spark.own", "1")]) == Path("/a b")
    for uri in ("file:/a", "file:///a", "FILE:///a"):
        assert local_path(uri, [("spark.hadoop.fs.defaultFS", "hdfs://host")]) == Path("/a")
    for other in ("s3a://bucket/a", "hdfs:///a", "file://host/a", "dbfs:/a"):
        assert local_path(other, []) is None
    assert local_path("/a", [("spark.hadoop.fs.defaultFS", "hdfs://host")]) is None
    for name in ELSEWHERE:
        with monkeypatch.context() as patched:
            patched.setenv(name, "/etc/hadoop")
            assert local_path("/a", []) is None
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", object())
    assert local_path("/a", []) is None, "the session that is there may have another file system"


@pytest.mark.usefixtures("without_spark")
def test_a_page_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(page: Path) -> str:
        assert profile.main(["orders", "--html", str(page), "-b", NOWHERE]) == 1
        return capsys.readouterr().err

    assert f"there is no directory {tmp_path / 'absent'}: create it" in said(tmp_path / "absent" / "page.html")
    assert f"--html {tmp_path} is a directory" in said(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert "page.html cannot be written: permission denied" in said(tmp_path / "page.html")


def test_the_cause_of_an_error_of_spark_is_found_in_what_it_quotes() -> None:
    text = (
        "[STREAM_FAILED] Query terminated\nTraceback (most recent call last):\n  File x\n"
        "tidelog.errors.ProducerFenced: another query runs\nat org.apache.spark"
    )
    assert sentence_of(RuntimeError(text)) == "another query runs"
    assert sentence_of(RuntimeError("\n[PATH_NOT_FOUND] no path\nmore")) == "[PATH_NOT_FOUND] no path"


TRACED = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/spark/worker.py", line 1, in main
    process()
    ~~~~~~~^^

KeyError: 'n'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status
{error}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:700)
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ValueError: year 58876 is out of range", "ValueError: year 58876 is out of range"),
        ("pyarrow.lib.ArrowInvalid: Integer value 1 not in range", "ArrowInvalid: Integer value 1 not in range"),
        ("MemoryError", "MemoryError"),
    ],
)
def test_the_cause_is_that_of_any_package_in_the_last_traceback_of_a_python_process(error: str, said: str) -> None:
    assert sentence_of(RuntimeError(TRACED.replace("{error}", error))) == said


def test_the_cause_is_found_below_the_method_that_py4j_names() -> None:
    text = (
        "An error occurred while calling o3250.collectToPython.\n"
        ": org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading a.parquet.\n"
        "\tat org.apache.spark.sql.X\nCaused by: org.apache.hadoop.fs.ChecksumException: Checksum error: a.parquet\n"
        "\t... 23 more\n"
    )
    said = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading a.parquet.; Checksum error: a.parquet"
    assert sentence_of(RuntimeError(text)) == said
    assert sentence_of(RuntimeError(text.partition("Caused")[0])) == said.partition(";")[0]


class JavaError:
    """An error in the JVM, whose stack trace py4j asks for; None: the JVM has ended."""

    _target_id = "o7"

    def __init__(self, trace: str | None) -> None:
        self._gateway_client, self._trace = self, trace

    def send_command(self, _: str) -> str:
        if self._trace is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return "ys" + self._trace.replace("\n", "\\n")  # success, a string


ABSENT = "the JVM of Spark does not answer; if it has ended, the system's log may say why"


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (
            "java.lang.IncompatibleClassChangeError: class SparkView can not implement View\n\tat java.base/X\n",
            "IncompatibleClassChangeError: class SparkView can not implement View",
        ),
        ("java.lang.NoClassDefFoundError: org/x/Y\n\tat X\n\t... 2 more\n", "NoClassDefFoundError: org/x/Y"),
        ("java.lang.StackOverflowError\n\tat X\n", "StackOverflowError"),
        ("org.x.Failure: \nmore\n\tat X\n", "Failure"),
        (
            "java.lang.ExceptionInInitializerError\n\nCaused by: x.W: no\n\tat Y\nCaused by: java.io.IOException: no",
            "ExceptionInInitializerError; IOException: no",
        ),
        (None, f"An error occurred while calling o108.toTable: {ABSENT}"),
    ],
)
def test_every_error_of_java_is_told_with_its_cause(trace: str | None, said: str) -> None:
    py4j: Any = pytest.importorskip("py4j.protocol")
    error = py4j.Py4JJavaError("An error occurred while calling o108.toTable.\n", JavaError(trace))
    assert sentence_of(error) == said


def test_an_error_without_an_error_of_java_or_without_a_message_is_told() -> None:
    py4j: Any = pytest.importorskip("py4j.protocol")
    calling = "An error occurred while calling o1.f"
    assert sentence_of(py4j.Py4JError(calling)) == f"{calling}: {ABSENT}"
    traced = py4j.Py4JError(f"{calling}. Trace:\npy4j.Py4JException: Method f([]) does not exist\n\tat X\n")
    assert sentence_of(traced) == "Method f([]) does not exist"
    unsaid = "\n\nJVM stacktrace:\njava.lang.UnsupportedOperationException\n\tat X"
    assert sentence_of(RuntimeError(unsaid)) == "UnsupportedOperationException"


class EndedSpark:
    """A session and a query whose JVM ends while the job waits, by the signal that the job receives if there is one."""

    def __init__(self, error: Exception, number: signal.Signals | None) -> None:
        self._error, self._signal = error, number

    def __getattr__(self, name: str) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    def awaitTermination(self, _: int) -> bool:
        if self._signal is not None:
            os.kill(os.getpid(), self._signal)
        raise self._error


def watched(error: Exception, number: signal.Signals | None, *, continuous: bool) -> bool:
    spark: Any = EndedSpark(error, number)
    arguments: Any = Namespace(quiet=True, continuous=continuous)
    return _watch(spark, spark, ArchiveProgress(), arguments)


@pytest.mark.parametrize("kind", ["refused", "py4j"])
def test_an_archive_whose_jvm_ends_by_the_same_signal_was_stopped(kind: str) -> None:
    py4j: Any = pytest.importorskip("py4j.protocol")
    error = ConnectionRefusedError() if kind == "refused" else py4j.Py4JError("An error occurred while calling o1.f")
    assert watched(error, signal.SIGTERM, continuous=True)
    with pytest.raises(JobTerminated):
        watched(error, signal.SIGTERM, continuous=False)
    with pytest.raises(type(error)) as raised:
        watched(error, None, continuous=True)
    assert raised.value is error, "the end of the JVM by itself, not what stopping the query says then"
    with pytest.raises(ZeroDivisionError):
        watched(ZeroDivisionError(), signal.SIGTERM, continuous=True)


@pytest.fixture
def pyspark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PySpark, without Java."""
    module: Any = pytest.importorskip("pyspark.sql")
    monkeypatch.setattr(job_session, "ensure_spark", lambda: None)
    return module


def test_a_session_that_does_not_start_leaves_the_handler_of_interrupts(
    pyspark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        signal.signal(signal.SIGINT, lambda *_: None)  # as SparkContext does
        raise RuntimeError("no such master")

    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)  # other tests may have one
    monkeypatch.setattr(pyspark.SparkSession.Builder, "getOrCreate", refuse)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(RuntimeError, match="no such master"), spark_session(NO_SETTINGS, "any"):
            pytest.fail("it started")
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_while_spark_starts_counts_when_it_has_started(
    pyspark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def create(_: object) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        events.append("started")
        context = Namespace(cancelAllJobs=lambda: None)
        return Namespace(sparkContext=context, stop=lambda: events.append("stopped"))

    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)  # other tests may have one
    monkeypatch.setattr(pyspark.SparkSession.Builder, "getOrCreate", create)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), spark_session(NO_SETTINGS, "any"):
        events.append("at work")
    assert events == ["started", "stopped"]
    assert signal.getsignal(signal.SIGINT) is before


class SessionSettings(dict[str, str]):
    """Settings of a session: a static one can be neither set nor unset."""

    @property
    def getAll(self) -> dict[str, str]:
        return dict(self)

    def set(self, key: str, value: str) -> None:
        self._refuse(key)
        self[key] = value

    def unset(self, key: str) -> None:
        self._refuse(key)
        self.pop(key, None)

    @staticmethod
    def _refuse(key: str) -> None:
        if key == "spark.static":
            raise RuntimeError("[CANNOT_MODIFY_CONFIG] spark.static")


def test_a_setting_that_spark_refuses_leaves_the_others_of_an_existing_session(
    pyspark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {"spark.sql.session.timeZone": "Europe/Oslo", "spark.own": "1"}
    existing = Namespace(conf=SessionSettings(before))
    monkeypatch.setattr(pyspark.SparkSession.Builder, "getOrCreate", lambda _: existing)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", object())
    arguments: Any = Namespace(conf=[("spark.own", "2"), ("spark.static", "x"), ("spark.other", "3")])
    with (
        pytest.raises(RuntimeError, match=r"^\[CANNOT_MODIFY_CONFIG\] spark\.static$"),
        spark_session(arguments, "any"),
    ):
        pytest.fail("it started")
    assert existing.conf == before


# --- audit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "has no receipts: check the program that writes it"),
        (b"\n \n", "has no receipts"),
        (b'\n{"receipt": 2}\n', ", line 2: a receipt is a JSON object"),
        (b"\xff\n", "is not UTF-8 text"),
    ],
)
def test_a_wrong_file_of_receipts_is_named(
    text: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "receipts.jsonl"
    file.write_bytes(text)
    assert audit.main(["--receipts", str(file), "-b", NOWHERE, "--json"]) == 1
    out, err = capsys.readouterr()
    assert str(file) in err and said in err and not out


def test_a_file_of_receipts_that_is_absent_is_named_with_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file, why in ((tmp_path / "absent.jsonl", "No such file or directory"), (tmp_path, "Is a directory")):
        assert audit.main(["--receipts", str(file), "-b", NOWHERE]) == 1
        out, err = capsys.readouterr()
        assert err.startswith(f"tidelog job audit: --receipts {file} cannot be read: {why}; name the file to which")
        assert not out


def replica(node: int) -> ReplicaReport:
    return ReplicaReport(NodeId(node), "read", "", Offset(0), Offset(9), Offset(9), 3, 300, 0, ())


def partition_report(compared: int, *replicas: ReplicaReport, difference: Difference | None = None) -> PartitionReport:
    return PartitionReport(
        topic="orders",
        topic_id=UUID(int=7),
        partition=0,
        leader=NodeId(0),
        leader_epoch=0,
        start=Offset(0),
        end=Offset(9),
        compacted=False,
        compared=compared,
        difference=difference,
        uncompared_keys=0,
        replicas=replicas,
        receipts=(),
    )


class HandClock(MachineClock):
    """Shows the time that a test sets."""

    now = 0

    def monotonic_ms(self) -> Millis:
        return Millis(self.now)


def test_an_audit_says_how_far_it_is_every_few_seconds_and_repeats_no_line_of_its_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    well, differs = (
        partition_report(3, replica(0)),
        partition_report(3, replica(0), difference=Difference(Offset(3), "checksum", {})),
    )

    def said(*, is_quiet: bool) -> str:
        clock = HandClock()
        progress = AuditProgress(clock, is_quiet=is_quiet)
        for each in (well, well, differs, well):
            clock.now += PROGRESS_MS // 2
            progress.note(each)
        out, err = capsys.readouterr()
        assert not out
        return err

    assert said(is_quiet=False).splitlines() == [
        "tidelog job audit: 2 partitions read; the last is orders-0",
        "tidelog job audit: 4 partitions read, 1 of them NOT WELL; the last is orders-0",
    ]
    assert said(is_quiet=True) == ""


def test_a_single_replica_is_checked_and_has_nothing_to_be_compared_with() -> None:
    def line(compared: int, *replicas: ReplicaReport) -> str:
        report = partition_report(compared, *replicas)
        return _report_lines(AuditReport((report,), ()), with_receipts=False)[0]

    single = "orders-0: offsets 0..8, 3 batches checked on the single replica, nothing to compare it with, well"
    assert line(0, replica(0)) == single
    assert "2 receipts were not checked" in _report_lines(AuditReport((), (), 2), with_receipts=True)[1]
    assert line(3, replica(0), replica(1)) == "orders-0: offsets 0..8, 3 batches compared on 2 of 2 replicas, well"


def test_a_schema_may_be_longer_than_the_name_of_a_file() -> None:
    columns = ", ".join(f"column{number} INT" for number in range(1_000))
    assert text_of_schema(columns) == columns
    with pytest.raises(InvalidConfig, match="there is no file"):
        text_of_schema("a" * 5_000)
