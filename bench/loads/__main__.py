"""`python -m bench.loads KIND`: a client process. Reads jobs from standard input (bench/loads/job.py)."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
import traceback

import uvloop

from bench.loads.job import Gate, Job


def main(kind: str) -> int:
    load = importlib.import_module(f"bench.loads.{kind.replace('-', '_')}_load")
    gate = Gate()
    # One event loop for all jobs: gRPC's client side stays bound to its first loop.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in iter(sys.stdin.readline, ""):
            job = Job.parse(line)
            try:
                answer = getattr(load, job.do)(job, gate)
                if inspect.iscoroutine(answer):
                    answer = runner.run(answer)
            except Exception as error:  # noqa: BLE001  (the parent reports it as the failure of this measurement)
                traceback.print_exc()
                answer = {"failed": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
