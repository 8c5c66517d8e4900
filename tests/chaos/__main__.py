"""Random faults on a real cluster under load: `make chaos MINUTES=10 NODES=5 SEED=7 FAULTS=kill RUNTIME=container`.

Idempotent producers of two clients, groups of both protocols, a transactional pipeline, topics that come and go and
replicas that move run side by side. A seed gives a schedule of faults, one or two at once. Afterwards the histories of
all workers are judged (verdict.py), and chaos-out/report.html shows what happened when. The exit code is 1 if anything
is wrong; chaos-out then keeps the history, the schedule and the logs.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.chaos.container_nodes import ContainerNodes, missing
from tests.chaos.faults.table import FAULTS, chosen
from tests.chaos.other_version import NO_RELEASE, OtherVersion, for_containers, for_processes, newest_release
from tests.chaos.play import Result, Say, play, save
from tests.chaos.process_nodes import ProcessNodes
from tests.chaos.report import Heading, write_report
from tests.chaos.schedule import Kind, plan
from tests.chaos.verdict import CHECKS

RUNTIMES: Mapping[str, type[ProcessNodes | ContainerNodes]] = {"process": ProcessNodes, "container": ContainerNodes}
OTHER_VERSION: Mapping[str, Callable[[str, Path], OtherVersion]] = {
    "process": for_processes,
    "container": for_containers,
}
UPGRADE = "rolling-upgrade"
OUT = Path("chaos-out")
FINDINGS_SHOWN = 20


def main() -> int:
    options = _options()
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    runtime = RUNTIMES[options.runtime]
    if options.runtime == "container" and (lacks := missing()) is not None:
        print(f"make chaos: nodes cannot be containers here: {lacks}", file=sys.stderr)
        return 2
    other_name = options.other_version or newest_release()
    cannot = {**runtime.cannot, **({} if other_name else {UPGRADE: NO_RELEASE})}
    names = [name for name in options.faults.split(",") if name]
    try:
        kinds = chosen(names, cannot)
        rounds = plan(options.seed, options.minutes * 60, options.nodes, kinds)
        if not rounds:
            raise ValueError(f"no fault ends within {options.minutes:g} minutes: give it more")
    except ValueError as refusal:
        print(f"make chaos: {refusal}", file=sys.stderr)
        return 2
    again = again_by(options.seed, options.minutes, options.nodes, options.runtime, kinds)
    say(f"the same faults again: {again}; the machine decides what they meet")
    for name, reason in cannot.items() if not names else ():
        say(f"left out: {name}: {reason}")
    played = {band.kind for each in rounds for band in each.bands}
    if late := [kind.name for kind in kinds if kind.name not in played]:
        say(f"too late for this run: {', '.join(late)}")
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="tidelog-chaos-") as scratch:
        other = None
        if other_name is not None and UPGRADE in played:
            say(f"the nodes form the cluster with {other_name}")
            other = OTHER_VERSION[options.runtime](other_name, Path(scratch))
        nodes = runtime(Path(scratch) / "nodes", options.nodes, other)
        try:
            result = play(nodes, rounds, options.minutes * 60, options.seed, options.out, say, spark=options.spark)
        finally:
            nodes.close()
    save(result, rounds, options.out)
    heading = Heading(options.seed, options.nodes, options.runtime, {} if names else cannot)
    write_report(options.out / "report.html", heading, result)
    _say_verdict(result, options.out, say)
    if result.passed and not options.keep:
        for path in options.out.iterdir():
            if path.name not in ("report.html", "schedule.json"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return 0 if result.passed else 1


def again_by(seed: int, minutes: float, nodes: int, runtime: str, kinds: Sequence[Kind]) -> str:
    """The command that plans the same faults anywhere. A seed alone does not: the kinds depend on what a machine can
    do, and on whether its checkout has a release to go back to."""
    faults = ",".join(kind.name for kind in kinds)
    return f"make chaos SEED={seed} MINUTES={minutes:g} NODES={nodes} RUNTIME={runtime} FAULTS={faults}"


def _say_verdict(result: Result, out: Path, say: Say) -> None:
    for finding in result.findings[:FINDINGS_SHOWN]:
        say(f"{finding.check}: {finding.text}")
    for check, count in result.checks_failed.items():
        say(f"FAILED: {check}, {count} times: {CHECKS[check]}")
    outcome = "PASSED" if result.passed else "FAILED"
    say(f"{outcome}: {_sum(result)}; {out}/report.html")


def _sum(result: Result) -> str:
    evidence = result.evidence
    unknown = sum(each.written is None for each in evidence.refused)
    return (
        f"{len(evidence.acked)} records acknowledged, {unknown} with an unknown outcome, "
        f"{len(evidence.refused) - unknown} not written"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--faults", default="", help=f"some of {', '.join(FAULTS)}; default: all that are possible")
    parser.add_argument("--runtime", choices=RUNTIMES, default="process")
    parser.add_argument(
        "--other-version",
        help="of the rolling upgrade: a git reference, a wheel or an image; default: the newest tag v*",
    )
    parser.add_argument("--spark", action="store_true", help="with a streaming query of Spark, which needs Java 17")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--keep", action="store_true", help="keep the history and the logs also if nothing is wrong")
    options = parser.parse_args()
    if options.nodes < 3:
        parser.error("--nodes must be 3 or more: topics have three replicas")
    return options


if __name__ == "__main__":
    sys.exit(main())
