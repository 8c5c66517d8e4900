"""`tidelog job audit`: proves that replicas have the same records, and that what receipts acknowledge is still there.

Exit code 0: all is well. 1: replicas differ, a replica is damaged or cannot be read, the record of a receipt is lost,
altered or cannot be checked. Replicas that lag or are offline are reported and are no failure by themselves.
Not here: one partition (partition_audit.py), receipts (tidelog/client/receipt.py).
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from tidelog.cli.declared import Argument, Option
from tidelog.cli.output import plain
from tidelog.client.admin import Admin
from tidelog.client.receipt import Receipt
from tidelog.client.replica_reader import ReplicaReader
from tidelog.clock import Clock, MachineClock
from tidelog.cluster_connection import ClusterConnection
from tidelog.errors import InvalidRequest, TopicAuthorizationFailed, UnknownTopicOrPartition
from tidelog.jobs.job_arguments import whole_number
from tidelog.jobs.job_frame import Job, JobArguments, RemoteStorage, print_report, run_as_program
from tidelog.jobs.partition_audit import CLEANUP_POLICY, READ, PartitionAudit, PartitionReport
from tidelog.jobs.receipt_check import FiledReceipt, ReceiptVerdict, Verdict
from tidelog.jobs.stored_replicas import audited_replicas
from tidelog.standard_streams import say
from tidelog.types import INT32_MAX, PartitionIndex, TopicId, TopicPartition

DESCRIPTION: Final = """\
Compare the replicas of each partition, reading every replica directly up to the high watermark, and check durability
receipts against the log.

  tidelog job audit
  tidelog job audit orders --json
  tidelog job audit --receipts receipts.jsonl
"""
PATIENCE_MS: Final = 5_000
PROGRESS_MS: Final = 5_000
"""Between two lines of progress. A short audit prints none: its report has a line for each partition."""
WHEN_INTERRUPTED: Final = "an audit changes nothing; the same command begins again"


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of the job."""

    partitions: tuple[PartitionReport, ...]
    receipts: tuple[ReceiptVerdict, ...]
    unchecked_receipts: int = 0
    """Number of receipts of topics that were not audited."""

    @property
    def is_well(self) -> bool:
        """True if nothing was found."""
        return all(each.is_well for each in self.partitions) and not any(
            each.verdict.is_failure for each in self.receipts
        )


class AuditProgress:
    """Says on standard error how far the audit is, a line every `PROGRESS_MS` at most."""

    def __init__(self, clock: Clock, *, is_quiet: bool) -> None:
        self._clock, self._is_quiet = clock, is_quiet
        self._count = self._not_well = 0
        self._said_at = clock.monotonic_ms()

    def note(self, report: PartitionReport) -> None:
        """A partition is read."""
        self._count += 1
        self._not_well += not report.is_well
        now = self._clock.monotonic_ms()
        if self._is_quiet or now - self._said_at < PROGRESS_MS:
            return
        self._said_at = now
        found = f", {self._not_well} of them NOT WELL" if self._not_well else ""
        say(f"tidelog job audit: {self._count} partitions read{found}; the last is {report.topic}-{report.partition}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditArguments(JobArguments):
    """The arguments of the job."""

    topics: Annotated[
        list[str],
        Argument(metavar="TOPIC", help="Default: all, or with --receipts those that receipts name."),
    ] = field(default_factory=list)
    topic: Annotated[list[str], Option(metavar="TOPIC", help="The same; can be repeated.")] = field(
        default_factory=list
    )
    receipts: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="One receipt a line, as `Receipt.to_json` writes it; - reads standard input. Only the partitions that "
            "receipts name are read, from the first receipt on, unless --topic is given.",
        ),
    ] = None
    remote_storage: RemoteStorage = "off"
    patience_ms: Annotated[
        int, whole_number("--patience-ms", "How long to wait for a replica that lags, in ms.", least=1, most=INT32_MAX)
    ] = PATIENCE_MS


def _work(arguments: AuditArguments) -> int:
    receipts = [] if arguments.receipts is None else read_receipts(*_receipt_lines(arguments.receipts))
    report = asyncio.run(_audit(arguments, arguments.connection, receipts))
    document = {"is_well": report.is_well, **plain(report)}
    document["receipts"] = [_verdict_document(each) for each in report.receipts]
    document["verdicts"] = _counts(report.receipts)
    for each in document["partitions"]:
        del each["receipts"]
    print_report(
        document, _report_lines(report, with_receipts=arguments.receipts is not None), as_json=arguments.as_json
    )
    return 0 if report.is_well else 1


def _receipt_lines(path: Path) -> tuple[Iterable[str], str]:
    """The lines of a file, and what errors call it."""
    if str(path) == "-":
        return sys.stdin, "standard input"
    return _lines_of(path), str(path)


def _lines_of(path: Path) -> Iterable[str]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from file
    except OSError as error:
        raise InvalidRequest(
            f"--receipts {path} cannot be read: {error.strerror or error}; name the file to which your program writes "
            "Receipt.to_json of its records, or - for standard input"
        ) from error


def read_receipts(lines: Iterable[str], name: str) -> list[FiledReceipt]:
    """Parse receipts; empty lines are skipped. name: of the file.

    Raises InvalidRequest, which names the file and the line, and if there is no receipt at all: a job that checks
    nothing must not say that all is well.
    """
    found = []
    try:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    found.append(FiledReceipt(number, Receipt.from_json(line)))
                except InvalidRequest as error:
                    raise InvalidRequest(f"{name}, line {number}: {error.message}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{name} is no file of receipts: it is not UTF-8 text ({error})") from error
    if not found:
        raise InvalidRequest(
            f"{name} has no receipts: check the program that writes it (Producer(receipts=True), and one line of "
            "Receipt.to_json for each record)"
        )
    return found


async def _audit(
    arguments: AuditArguments, connection: ClusterConnection, receipts: Sequence[FiledReceipt]
) -> AuditReport:
    async with (
        Admin(connection.bootstrap, patience_ms=arguments.patience_ms, **connection.of_client) as admin,
        ReplicaReader(connection.bootstrap, **connection.of_client) as reader,
    ):
        topics = list(dict.fromkeys([*arguments.topics, *arguments.topic]))
        only_receipts = arguments.receipts is not None and not topics
        if only_receipts:
            topics = sorted({each.receipt.topic for each in receipts})
        elif not topics:
            topics = [topic.name for topic in await admin.list_topics()]
        partitions: list[PartitionReport] = []
        verdicts: list[ReceiptVerdict] = []
        progress = AuditProgress(MachineClock(), is_quiet=arguments.quiet)
        for name in topics:
            own = [each for each in receipts if each.receipt.topic == name]
            done, beside = await _audit_topic(
                admin, reader, name, own, arguments, progress, only_receipts=only_receipts
            )
            partitions += done
            verdicts += beside
        verdicts += [verdict for partition in partitions for verdict in partition.receipts]
        verdicts.sort(key=lambda each: each.line)
        return AuditReport(tuple(partitions), tuple(verdicts), len(receipts) - len(verdicts))


async def _audit_topic(
    admin: Admin,
    reader: ReplicaReader,
    name: str,
    receipts: Sequence[FiledReceipt],
    arguments: AuditArguments,
    progress: AuditProgress,
    *,
    only_receipts: bool,
) -> tuple[list[PartitionReport], list[ReceiptVerdict]]:
    """The reports of the partitions, and the verdicts that need no reading. Raises UnknownTopicOrPartition if the topic
    is named by more than receipts, TopicAuthorizationFailed."""
    try:
        topic = await reader.topic(name, timeout_ms=arguments.patience_ms)
    except UnknownTopicOrPartition:
        if not only_receipts:
            raise
        return [], [_without_topic(each, None) for each in receipts]
    # Records that compaction removed would count as lost in a topic that is taken for one without it.
    if CLEANUP_POLICY not in topic.configs:
        raise TopicAuthorizationFailed(
            f"the audit must know whether topic {name!r} is compacted: allow DESCRIBE_CONFIGS of the topic besides READ"
        )
    verdicts = [_without_topic(each, topic.topic_id) for each in receipts if each.receipt.topic_id != topic.topic_id]
    by_partition: dict[int, list[FiledReceipt]] = {}
    for each in receipts:
        if each.receipt.topic_id != topic.topic_id:
            continue
        if each.receipt.partition < len(topic.partitions):
            by_partition.setdefault(each.receipt.partition, []).append(each)
        else:
            detail = (
                f"topic {name!r} has {len(topic.partitions)} partitions, and a topic never loses one under the same "
                "id: the receipt is damaged"
            )
            verdicts.append(ReceiptVerdict(each.line, each.receipt, Verdict.LOST, detail))
    reports = []
    for index in sorted(by_partition) if only_receipts else range(len(topic.partitions)):
        topic = await reader.topic(name, timeout_ms=arguments.patience_ms)
        audit = PartitionAudit(
            await audited_replicas(
                admin,
                reader,
                topic,
                TopicPartition(name, PartitionIndex(index)),
                arguments.remote_storage,
                timeout_ms=arguments.patience_ms,
            ),
            MachineClock(),
            topic,
            index,
            by_partition.get(index, ()),
            from_receipts=only_receipts,
            patience_ms=arguments.patience_ms,
        )
        report = await audit.run()
        reports.append(report)
        progress.note(report)
    return reports, verdicts


def _without_topic(filed: FiledReceipt, present: TopicId | None) -> ReceiptVerdict:
    name = filed.receipt.topic
    detail = (
        f"there is no topic {name!r}" if present is None else f"topic {name!r} was deleted and created again: {present}"
    )
    return ReceiptVerdict(filed.line, filed.receipt, Verdict.TOPIC_DELETED, detail)


# --- report -------------------------------------------------------------------------------------------------------


def _counts(receipts: Iterable[ReceiptVerdict]) -> Mapping[str, int]:
    counted = Counter(each.verdict for each in receipts)
    return {verdict.value: counted[verdict] for verdict in Verdict if counted[verdict]}


def _verdict_document(each: ReceiptVerdict) -> dict[str, Any]:
    receipt = each.receipt
    return {
        "line": each.line,
        "topic": receipt.topic,
        "partition": receipt.partition,
        "offset": receipt.offset,
        "verdict": each.verdict.value,
        "detail": each.detail,
        "nodes": list(each.nodes),
    }


def _partition_line(report: PartitionReport) -> str:
    name = f"{report.topic}-{report.partition}"
    what = "records" if report.compacted else "batches"
    read = [replica for replica in report.replicas if replica.state == READ]
    done = f"{name}: offsets {report.start}..{report.end - 1}" if report.end > report.start else f"{name}: no records"
    if len(report.replicas) == 1:
        same = f"{report.replicas[0].batches} batches checked on the single replica, nothing to compare it with"
    else:
        same = f"{report.compared} {what} compared on {len(read)} of {len(report.replicas)} replicas"
    return f"{done}, {same}, {'well' if report.is_well else 'NOT WELL'}"


def _report_lines(report: AuditReport, *, with_receipts: bool) -> list[str]:
    lines = []
    for partition in report.partitions:
        lines.append(_partition_line(partition))
        if partition.difference is not None:
            lines.append(f"  first difference: {partition.difference}")
        if partition.uncompared_keys:
            lines.append(f"  {partition.uncompared_keys} missing records were not followed: too many keys")
        for replica in partition.replicas:
            role = " (leader)" if replica.node == partition.leader else ""
            if replica.state != READ:
                lines.append(f"  node {replica.node}{role} is {replica.state}: {replica.note}")
            lines += [f"  node {replica.node}{role}: {problem}" for problem in replica.problems]
            if replica.problem_count > len(replica.problems):
                lines.append(
                    f"  node {replica.node}{role}: {replica.problem_count - len(replica.problems)} more problems"
                )
    if with_receipts:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in _counts(report.receipts).items())
        lines.append(f"receipts: {counts or 'none'}")
        if report.unchecked_receipts:
            lines.append(
                f"  {report.unchecked_receipts} receipts were not checked: --topic does not name their topics; name "
                "them too, or leave out --topic"
            )
        lines += [
            f"  line {each.line}: {each.receipt.topic}-{each.receipt.partition} offset {each.receipt.offset} is "
            f"{each.verdict.value}: {each.detail}"
            for each in report.receipts
            if each.verdict is not Verdict.PRESENT
        ]
    lines.append("all is well" if report.is_well else "NOT WELL: see above")
    return lines


JOB: Final = Job("audit", DESCRIPTION, AuditArguments, _work, WHEN_INTERRUPTED)
main: Final = JOB.main


if __name__ == "__main__":
    sys.exit(run_as_program(main, __file__))
