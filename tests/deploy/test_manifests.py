"""The kustomize base, rendered: what a StatefulSet of replicated logs needs of Kubernetes."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from tests.integration import manifest

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl to render the base with")
LABEL = {"app.kubernetes.io/name": "tidelog"}


def test_pods_start_together_and_find_each_other_before_they_are_ready() -> None:
    stateful = manifest.the("StatefulSet")["spec"]
    nodes = manifest.the("Service", stateful["serviceName"])["spec"]
    assert stateful["podManagementPolicy"] == "Parallel"
    assert nodes["clusterIP"] == "None"
    assert nodes["publishNotReadyAddresses"] is True
    assert nodes["selector"] == LABEL


def test_the_services_and_the_budget_choose_exactly_our_pods() -> None:
    stateful = manifest.the("StatefulSet")["spec"]
    assert stateful["selector"]["matchLabels"] == LABEL
    assert stateful["template"]["metadata"]["labels"] == LABEL
    assert manifest.the("Service")["spec"]["selector"] == LABEL
    budget = manifest.the("PodDisruptionBudget")["spec"]
    assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": LABEL}}


def test_each_pod_advertises_its_own_name_and_the_config_names_all_of_them() -> None:
    pods = manifest.pods()
    advertised = [pod.environment["TIDELOG_ADVERTISED_LISTENERS"] for pod in pods]
    names = [f"tidelog-{ordinal}.tidelog-nodes:9092" for ordinal in range(3)]
    assert advertised == [f"client://{name}" for name in names]
    assert manifest.config()["controller.quorum.bootstrap.servers"] == names
    assert [pod.environment["TIDELOG_POD_NAME"] for pod in pods] == ["tidelog-0", "tidelog-1", "tidelog-2"]


def test_data_survives_the_pod_in_the_configured_directory() -> None:
    (claim,) = manifest.the("StatefulSet")["spec"]["volumeClaimTemplates"]
    mounted = Path(manifest.Pod(0).mount(claim["metadata"]["name"]))
    (directory,) = manifest.config()["log.dirs"]
    assert Path(directory).is_relative_to(mounted)


def test_probes_ask_the_node_itself_and_liveness_asks_nothing_about_others() -> None:
    container = manifest.container()
    port = int(manifest.config()["listeners"][0].rpartition(":")[2])
    assert container["startupProbe"]["grpc"] == {"port": port}
    assert container["livenessProbe"]["grpc"] == {"port": port}
    assert container["readinessProbe"]["grpc"] == {"port": port, "service": "tidelog.ready"}
    assert container["lifecycle"]["preStop"]


def test_a_drain_has_the_time_it_may_take() -> None:
    stateful = manifest.the("StatefulSet")["spec"]["template"]["spec"]
    drain_seconds_max = 30
    pause = manifest.container()["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert stateful["terminationGracePeriodSeconds"] >= drain_seconds_max + pause


def test_a_pod_may_run_in_a_restricted_namespace() -> None:
    pod = manifest.the("StatefulSet")["spec"]["template"]["spec"]
    container = manifest.container()["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert container["readOnlyRootFilesystem"] is True


def test_image_and_manifest_agree_on_user_and_directories() -> None:
    dockerfile = (manifest.ROOT / "deploy/docker/Dockerfile").read_text()
    assert f"USER {manifest.Pod(0).user}" in dockerfile
    assert f"VOLUME {manifest.Pod(0).mount('data')}" in dockerfile
    assert 'ENTRYPOINT ["python", "-m", "node"]' in dockerfile
    assert "STOPSIGNAL SIGTERM" in dockerfile


def test_the_config_is_a_toml_file_that_only_one_node_bootstraps_by() -> None:
    config = tomllib.loads(manifest.config_text())
    assert config["cluster.bootstrap.node.id"] in range(3)
    assert "cluster.bootstrap.enable" not in config
