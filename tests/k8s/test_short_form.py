"""The short form of `make k8s-test`, for the deep tests: one scenario on a Kubernetes that is brought up for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.integration import manifest
from tests.k8s.small_kubernetes import BUILD_S, TOOLS, missing, small_kubernetes

SCENARIO = "tests/k8s/test_all_pods.py"


@pytest.mark.containers
@pytest.mark.timeout(BUILD_S + 600)
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_manifests_run_on_a_real_kubernetes() -> None:
    """Goal: a change that breaks the pods is noticed before `make k8s-test`. Method: the scenario that kills all pods
    at once. It takes two minutes; the first time, where `make deep-needs` has not built it, ten minutes more."""
    with small_kubernetes() as kubeconfig:
        environment = {**os.environ, "KUBECONFIG": kubeconfig, "IMAGE_LOAD": str(TOOLS / "load-image")}
        command = (sys.executable, "-m", "pytest", "-q", "-s", "-n0", "-p", "no:cacheprovider", "-m", "k8s", SCENARIO)
        played = subprocess.run(
            command, cwd=manifest.ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    assert played.returncode == 0, played.stdout[-8000:] + played.stderr[-2000:]
    assert "1 passed" in played.stdout, played.stdout[-2000:]
