"""A small real Kubernetes on this machine, for the short form of `make k8s-test`.

`python -m tests.k8s.small_kubernetes` builds it beforehand, which takes minutes once. K8S_TOOLS is a directory with the
programs `up`, `load-image` and `down`: `up` builds Kubernetes from Go modules into K8S_CACHE, starts it and prints the
path of its KUBECONFIG. It needs root, Go, a Docker engine and what containers need.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration import manifest

TOOLS = Path(os.environ.get("K8S_TOOLS") or manifest.ROOT.parent / "shared" / "tools" / "k8s")
PROGRAMS = ("go", "docker", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip", "iptables", "kubectl")
BUILD_S = 1500
CACHE = Path(
    os.environ.get("K8S_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "k8s-test"
)


def missing() -> str | None:
    """Why no scenario can be played here, for the summary of the test run; None if nothing is missing."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    for is_missing, what in (
        (not (TOOLS / "up").is_file(), f"K8S_TOOLS has no program `up`: {TOOLS}"),
        (os.geteuid() != 0, "it needs root"),
        (bool(lacking), f"no {', '.join(lacking)} (Debian: apt install docker.io iproute2 iptables, and Go 1.24)"),
    ):
        if is_missing:
            return f"NO SCENARIO IS PLAYED ON KUBERNETES: {what}"
    return None


@contextmanager
def small_kubernetes() -> Iterator[str]:
    """The KUBECONFIG of a cluster that runs. It is removed at the end, unless there was one before."""
    is_ours = not (CACHE / "run").exists()
    done = _up()
    if done.returncode != 0 and not is_ours:
        # What a machine left that was switched off while it ran: the processes are gone, and their files are not.
        is_ours = True
        subprocess.run([TOOLS / "down"], timeout=120, check=True)
        done = _up()
    try:
        assert done.returncode == 0, f"{TOOLS}/up has failed; it says why above"
        yield done.stdout.strip()
    finally:
        if is_ours:
            subprocess.run([TOOLS / "down"], timeout=120, check=True)


def _up() -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOOLS / "up"], stdout=subprocess.PIPE, text=True, timeout=BUILD_S, check=False)


def main() -> int:
    if reason := missing():
        print(reason, file=sys.stderr)
        return 0
    with small_kubernetes():
        return 0


if __name__ == "__main__":
    sys.exit(main())
