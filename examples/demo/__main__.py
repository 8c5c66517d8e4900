"""`make demo`: three nodes replicate real input, the node that leads most is killed, Spark reads what was committed.

Exit code: 0 everything acknowledged was read, in order; 1 it was not, or the demo did not finish;
2 something is missing on this machine; 130 interrupted. Whatever happens, nothing is left running.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

import psutil

from examples.demo import inputs, story, tier
from examples.demo.inputs import Item
from examples.demo.interrupts import Interrupts
from examples.demo.ledger import Ledger
from examples.demo.meter import Meter
from examples.demo.progress import Progress
from node.process.local_cluster import ClusterFailed, LocalCluster
from tidelog import TidelogError

PASSED: Final = 0
FAILED: Final = 1
UNPREPARED: Final = 2
INTERRUPTED: Final = 130

CHILD_SECONDS_MAX: Final = 5


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    missing = _missing()
    if missing:
        print(f"demo: {missing}", file=sys.stderr)
        return UNPREPARED
    try:
        items, source = _input(options.input)
    except (OSError, ValueError) as cause:
        print(f"demo: {cause}", file=sys.stderr)
        return UNPREPARED
    interrupts = Interrupts()
    interrupts.listen()
    directory = Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    try:
        _prepare(options.out)
        with Progress() as progress:
            return _run(options, items, source, directory, progress, interrupts)
    except (KeyboardInterrupt, Exception) as cause:
        if interrupts.came:  # whatever it has become on its way
            print("demo: interrupted", file=sys.stderr)
            return INTERRUPTED
        _save_logs(directory, options.out)
        print(f"demo: what the nodes and Spark logged is in {options.out}/logs", file=sys.stderr)
        if not isinstance(cause, (story.DemoFailed, ClusterFailed, TidelogError, OSError, ValueError)):
            raise  # a defect of the demo: its trace says more
        print(f"demo: FAILED: {cause}", file=sys.stderr)
        return FAILED
    finally:
        interrupts.ignore()
        _end_children()
        if options.keep:
            print(f"kept {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)


def _run(
    options: argparse.Namespace,
    items: Iterator[Item],
    source: str,
    directory: Path,
    progress: Progress,
    interrupts: Interrupts,
) -> int:
    from examples.demo import report, verdict

    def step(text: str) -> None:
        interrupts.check()
        progress.step(text)

    plan = story.Plan.quick(options.rate) if options.quick else story.Plan(records_per_second=options.rate)
    if options.tiered:
        plan = replace(plan, configs=tier.configs(quick=options.quick))
    meter = Meter()
    tiers = None
    step(f"starting three nodes; input: {source}")
    settings = tier.SETTINGS if options.tiered else None
    with LocalCluster(directory / "cluster", settings=settings, tiered=options.tiered) as cluster:
        cluster.wait_healthy()
        step(f"three nodes are up: {cluster.bootstrap}")
        with Ledger(directory / "ledger.parquet") as ledger:
            finished = interrupts.run(story.run(cluster, items, ledger, meter, plan, progress))
        if options.tiered:
            tiers = interrupts.run(tier.settle(cluster, progress))
        step(f"{ledger.rows:,} records acknowledged, of {finished.sent:,} sent; Spark starts and reads them")
        findings, analysis = verdict.read_back(
            cluster.bootstrap,
            ledger.path,
            directory / "spark",
            of_lines=options.input is not None,
            picture=options.out / "analytics.png",
            planted_loss=options.plant_loss,
            step=step,
        )
        if tiers is not None:
            tiers = replace(tiers, read_bytes=tier.read_bytes(cluster))
        step("the nodes stop")
    step("the nodes have stopped")
    run = report.Run(source, plan, finished, meter, findings, analysis, options.plant_loss, progress.seconds, tiers)
    verdict.print_verdict(run, progress)
    verdict.save(run, options.out)
    progress.say(f"{options.out}/report.json, failover.png and analytics.png say more")
    return FAILED if run.faults else PASSED


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Three nodes replicate real input, one is killed, Spark reads what was committed.",
    )
    parser.add_argument("--input", type=Path, metavar="FILE", help="lines of this file, plain or gzip (live telemetry)")
    parser.add_argument("--rate", type=_positive, default=3_000, metavar="N", help="records per second (3000)")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), metavar="DIRECTORY", help="for the report (demo-out)"
    )
    parser.add_argument(
        "--tiered",
        action="store_true",
        help="the topic has a remote tier, in a folder: closed segments leave the nodes",
    )
    parser.add_argument("--quick", action="store_true", help="as short as it can be")
    parser.add_argument("--keep", action="store_true", help="do not remove the nodes' directories")
    parser.add_argument(
        "--plant-loss", action="store_true", help="keep one acknowledged record from the check: it must fail"
    )
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _missing() -> str | None:
    """What this machine lacks, with what brings it."""
    try:
        from examples.demo.session import java
    except ModuleNotFoundError as cause:
        return f"no Python package {cause.name!r}. Run `make env`, then .venv/bin/python -m examples.demo"
    if java() is None:
        return (
            "Spark needs Java 17 or newer, and neither JAVA_HOME nor the path has one. "
            "Debian: apt install openjdk-17-jre-headless"
        )
    return None


def _input(path: Path | None) -> tuple[Iterator[Item], str]:
    if path is None:
        return inputs.telemetry(), "live telemetry of this machine"
    items = inputs.file_lines(path)
    first = next(items)  # a file that cannot be read is refused before anything is started
    return chain([first], items), str(path)


def _prepare(out: Path) -> None:
    """The directory for the report, without what an earlier run said: a run that fails early must not show its
    verdict."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("report.json", "failover.png"):
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / "logs", ignore_errors=True)


def _save_logs(directory: Path, out: Path) -> None:
    target = out / "logs"
    target.mkdir(parents=True, exist_ok=True)
    for log in directory.glob("cluster/node-*/node.log"):
        shutil.copyfile(log, target / f"{log.parent.name}.log")
    for log in directory.glob("spark/spark.log"):
        shutil.copyfile(log, target / log.name)


def _end_children() -> None:
    """Whatever this process has started and is still there ends now, each by its own id."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        child.terminate()
    for child in psutil.wait_procs(children, timeout=CHILD_SECONDS_MAX)[1]:
        child.kill()


if __name__ == "__main__":
    sys.exit(main())
