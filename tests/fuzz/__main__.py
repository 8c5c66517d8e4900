"""`python -m tests.fuzz`: feeds made-up bytes to every parser, each for a bounded time, in a process of its own.

With atheris (libFuzzer) inputs are guided by coverage; where it is not installed, a plain mutator of the seeds serves,
and the run says so. A finding is kept as a file, and the command that replays it is printed. An input that takes longer
than 10 seconds, or more memory than 1.5 GiB, is a finding too.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

INPUT_SECONDS_MAX: Final = 10
MEMORY_BYTES_MAX: Final = 1536 << 20
START_SECONDS_MAX: Final = 120
INPUT_BYTES_MAX: Final = 4096
KEPT: Final = Path("build/fuzz")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the parsers of tidelog.records.")
    parser.add_argument("--seconds", type=int, default=20, help="for each target")
    parser.add_argument("--target", help="this one alone, in this process")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="one input of that target")
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        from tests.fuzz import targets

        targets.run(options.target, options.replay.read_bytes())
        print(f"{options.target}: nothing found")
        return 0
    if options.target:
        fuzz(options.target, options.seconds, options.corpus)
        return 0
    return fuzz_all(options.seconds)


def fuzz_all(seconds: int) -> int:
    """Every target; how many had a finding becomes the exit code."""
    from tests.fuzz import targets

    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: inputs are not guided by coverage", file=sys.stderr)
    KEPT.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in targets.TARGETS:
        with tempfile.TemporaryDirectory() as corpus:
            for number, seed in enumerate(targets.seeds(name)):
                Path(corpus, f"seed-{number}").write_bytes(seed)
            command = [sys.executable, "-m", "tests.fuzz", "--target", name, "--seconds", str(seconds)]
            try:
                done = subprocess.run(
                    [*command, "--corpus", corpus],
                    capture_output=True,
                    text=True,
                    stdin=subprocess.DEVNULL,
                    timeout=seconds + START_SECONDS_MAX,
                    check=False,
                )
                said, status = done.stdout + done.stderr, done.returncode
            except subprocess.TimeoutExpired as late:
                said, status = f"it did not end: {late}", 1
        if status:
            failed += 1
            print(f"{name}: FOUND, exit code {status}\n{said[-4000:]}")
            print(f"replay: python -m tests.fuzz --target {name} --replay {KEPT}/{name}-...", flush=True)
        else:
            summary = [line for line in said.splitlines() if line.startswith("Done ")]
            print(f"{name}: {summary[-1] if summary else 'done'}", flush=True)
    return failed


def fuzz(name: str, seconds: int, corpus: Path | None) -> None:
    """Ends the process where libFuzzer does."""
    try:
        import atheris
    except ImportError:
        mutate(name, seconds)
        return
    with atheris.instrument_imports(include=["tidelog.records"]):
        from tests.fuzz import targets
    KEPT.mkdir(parents=True, exist_ok=True)
    atheris.Setup(
        [
            "tests.fuzz",
            *([str(corpus)] if corpus else []),
            f"-max_total_time={seconds}",
            f"-timeout={INPUT_SECONDS_MAX}",
            f"-rss_limit_mb={MEMORY_BYTES_MAX >> 20}",
            f"-max_len={INPUT_BYTES_MAX}",
            f"-artifact_prefix={KEPT}/{name}-",
            "-print_final_stats=0",
        ],
        lambda data: targets.run(name, data),
    )
    atheris.Fuzz()


def mutate(name: str, seconds: int) -> None:
    """Without coverage: seeds, changed a little or a lot."""
    from tests.fuzz import targets
    from tests.fuzz.mutator import mutated

    resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY_BYTES_MAX, 4 * MEMORY_BYTES_MAX))
    rng = random.Random(name)
    seeds = [*targets.seeds(name), b""]
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        data = mutated(rng, seeds)
        last = KEPT / f"{name}-{os.getpid()}"
        signal.alarm(INPUT_SECONDS_MAX)
        try:
            targets.run(name, data)
        except BaseException:
            KEPT.mkdir(parents=True, exist_ok=True)
            last.write_bytes(data)
            raise
        signal.alarm(0)
        count += 1
    print(f"Done {count} runs in {seconds} second(s), without coverage")


if __name__ == "__main__":
    sys.exit(main())
