"""What the pods of a test tell, kept in files: a pod that is replaced takes its log with it, and tests replace many.

K8S_OUT names the directory; without it nothing is kept.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

STARTED = '{.metadata.name}{" "}{.metadata.uid}{" "}{.status.containerStatuses[0].containerID}{"\\n"}'
"""A line for each change of a pod; the last word is missing until its container has started."""

EVENT = '{.metadata.creationTimestamp}{" "}{.involvedObject.name}{" "}{.reason}{": "}{.message}{"\\n"}'


@contextmanager
def kept_logs(namespace: str) -> Iterator[None]:
    """While it lasts, each container that starts in the namespace has a file with its log, beside one with the
    events, both with times."""
    if not (out := os.environ.get("K8S_OUT")):
        yield
        return
    home = Path(out) / namespace
    home.mkdir(parents=True)
    kubectl = ("kubectl", "--namespace", namespace)
    with ExitStack() as writers:
        _write(writers, home / "events.log", *kubectl, "get", "events", "--watch", f"--output=jsonpath={EVENT}")
        watch = subprocess.Popen(
            (*kubectl, "get", "pods", "--watch", f"--output=jsonpath={STARTED}"), stdout=subprocess.PIPE, text=True
        )

        def follow() -> None:
            assert watch.stdout is not None
            seen = set()
            for line in watch.stdout:
                pod, *container = line.split()
                if len(container) == 2 and tuple(container) not in seen:
                    seen.add(tuple(container))
                    name = f"{pod}-{len(seen):02}.log"
                    _write(writers, home / name, *kubectl, "logs", "--follow", "--timestamps", pod)

        following = threading.Thread(target=follow, daemon=True)
        following.start()
        try:
            yield
        finally:
            watch.kill()
            following.join(10)
            watch.wait()


def _write(writers: ExitStack, file: Path, *command: str) -> None:
    """What a command tells, into a file; it is killed at the end, if it still runs."""
    log = writers.enter_context(file.open("w"))
    process = subprocess.Popen(command, stdout=log, stderr=log)
    writers.callback(process.wait)
    writers.callback(process.kill)
