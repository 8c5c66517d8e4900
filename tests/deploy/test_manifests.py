"""The kustomize base, rendered: what a StatefulSet of replicated logs needs of Kubernetes."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from node.config import MEMORY_BYTES, NodeConfig, parse
from node.listener_settings import ListenerProtocol
from tests.deploy.check import findings
from tests.deploy.kustomizations import Objects
from tests.deploy.references import variables_of_maps
from tests.integration import manifest
from tidelog.types import Endpoint

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
    names = [f"tidelog-{ordinal}.tidelog-nodes" for ordinal in range(3)]
    assert advertised == [f"KAFKA://{name}:9092,GRPC://{name}:9192" for name in names]
    assert manifest.config()["controller.quorum.bootstrap.servers"] == [f"{name}:9192" for name in names]
    assert [pod.environment["TIDELOG_POD_NAME"] for pod in pods] == ["tidelog-0", "tidelog-1", "tidelog-2"]


def test_data_survives_the_pod_in_the_configured_directory() -> None:
    (claim,) = manifest.the("StatefulSet")["spec"]["volumeClaimTemplates"]
    mounted = Path(manifest.Pod(0).mount(claim["metadata"]["name"]))
    (directory,) = manifest.config()["log.dirs"]
    assert Path(directory).is_relative_to(mounted)


def test_probes_ask_the_node_itself_and_liveness_asks_nothing_about_others() -> None:
    container = manifest.container()
    ports = {name: int(at.rpartition(":")[2]) for name, at in listeners_of(manifest.config())}
    port = ports["GRPC"]
    assert container["startupProbe"]["grpc"] == {"port": port}
    assert container["livenessProbe"]["grpc"] == {"port": port}
    assert container["readinessProbe"]["grpc"] == {"port": port, "service": "tidelog.caught-up"}
    assert container["lifecycle"]["preStop"]


@pytest.mark.parametrize("overlay", [manifest.BASE, manifest.PROD])
def test_clients_of_kafka_and_ours_find_every_node_behind_both_services(overlay: Path) -> None:
    """And the node accepts what configuration and environment say of its listeners."""
    ports = {port["name"]: port["containerPort"] for port in manifest.container(overlay)["ports"]}
    clients = {"kafka": "KAFKA", "grpc-client": "GRPC"}
    service, headless = (manifest.the("Service", name, overlay)["spec"] for name in ("tidelog", "tidelog-nodes"))
    assert {each["name"]: each["port"] for each in service["ports"]} == {name: ports[name] for name in clients}
    for each in headless["ports"]:
        assert (each["port"], each["targetPort"]) == (ports[each["name"]], each["name"])
    assert clients.keys() <= {each["name"] for each in headless["ports"]}
    for pod in manifest.pods(overlay):
        config = parse(manifest.config_text(overlay), pod.environment, source="tidelog.toml", host_name=pod.name)
        found = {each.name: each for each in config.listeners}
        for name, listener in clients.items():
            assert found[listener].protocol.is_kafka is (name == "kafka")
            assert found[listener].bind == Endpoint("0.0.0.0", ports[name])
            advertised = found[listener].advertised
            assert advertised is not None
            assert (advertised.host in pod.host_names, advertised.port) == (True, ports[name])


def listeners_of(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for listener in config["listeners"]:
        name, _, address = listener.partition("://")
        yield name, address


def test_a_pod_may_run_in_a_restricted_namespace() -> None:
    pod = manifest.the("StatefulSet")["spec"]["template"]["spec"]
    container = manifest.container()["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert container["readOnlyRootFilesystem"] is True


def test_the_overlay_for_production_has_everything_of_the_base_in_a_restricted_namespace() -> None:
    base = {name_of(each) for each in manifest.render()}
    prod = {name_of(each): each for each in manifest.render(manifest.PROD)}
    assert prod.keys() - base == {("Namespace", "tidelog"), ("NetworkPolicy", "tidelog"), ("PriorityClass", "tidelog")}
    assert base <= prod.keys()
    of_cluster = ("Namespace", "PriorityClass")
    assert {each["metadata"].get("namespace") for (kind, _), each in prod.items() if kind in of_cluster} == {None}
    assert {each["metadata"]["namespace"] for (kind, _), each in prod.items() if kind not in of_cluster} == {"tidelog"}
    assert prod["Namespace", "tidelog"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    pod = prod["StatefulSet", "tidelog"]["spec"]["template"]["spec"]
    of_base = manifest.the("StatefulSet")["spec"]["template"]["spec"]
    assert pod["securityContext"] == of_base["securityContext"]
    for kept in ("securityContext", "lifecycle", "args", "image"):
        assert pod["containers"][0][kept] == of_base["containers"][0][kept]
    assert pod["affinity"].keys() == {"podAntiAffinity"}
    assert pod["affinity"]["podAntiAffinity"].keys() == {"requiredDuringSchedulingIgnoredDuringExecution"}


def test_nodes_in_production_are_spread_over_zones_and_make_room_for_themselves() -> None:
    stateful = manifest.the("StatefulSet", overlay=manifest.PROD)["spec"]
    pod = stateful["template"]["spec"]
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["maxSkew"]) == ("topology.kubernetes.io/zone", 1)
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway", "machines without a zone would run no pod"
    assert spread["labelSelector"]["matchLabels"] == LABEL
    priority = manifest.the("PriorityClass", pod["priorityClassName"], manifest.PROD)
    assert 0 < priority["value"] < 1_000_000_000, "above what has no class, below what belongs to Kubernetes"
    assert 0 < stateful["minReadySeconds"] <= 60, "a crash stops a rolling update; replicas are waited for by the probe"


@pytest.mark.parametrize("overlay", [manifest.BASE, manifest.DEV, manifest.PROD])
def test_a_container_has_four_times_the_memory_that_its_node_gives_to_records(overlay: Path) -> None:
    limit = bytes_of(manifest.container(overlay)["resources"]["limits"]["memory"])
    records = min(max(limit // 4, 32 << 20), MEMORY_BYTES)
    assert limit >= 4 * records
    assert bytes_of(manifest.container(overlay)["resources"]["requests"]["memory"]) >= records


def bytes_of(quantity: str) -> int:
    return int(quantity[:-2]) << {"Mi": 20, "Gi": 30}[quantity[-2:]]


@pytest.mark.parametrize("overlay", [manifest.BASE, manifest.PROD])
def test_the_rack_is_the_zone_that_kubernetes_copies_to_the_pod_and_none_where_it_copies_none(overlay: Path) -> None:
    stateful = manifest.the("StatefulSet", overlay=overlay)
    for zone in ("", "eu-west-1b"):
        environ = manifest.environment(stateful, 0, zone)
        assert parse(manifest.config_text(overlay), environ, source="tidelog.toml", host_name="tidelog-0").rack == zone
    kinds = {each["kind"] for each in manifest.render(overlay)}
    assert not any("Role" in kind or kind == "ServiceAccount" for kind in kinds), "it needs no rights"
    assert stateful["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def name_of(each: dict[str, Any]) -> tuple[str, str]:
    """Kind and name, without the hash of a generated one."""
    return each["kind"], re.sub(r"-[a-z0-9]{10}$", "", each["metadata"]["name"])


def test_the_network_policy_lets_nodes_labelled_clients_and_the_collector_of_metrics_reach_their_ports() -> None:
    policy = manifest.the("NetworkPolicy", overlay=manifest.PROD)["spec"]
    assert policy["podSelector"]["matchLabels"] == LABEL
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    pod = {port["name"]: port["containerPort"] for port in manifest.container(manifest.PROD)["ports"]}
    assert pod == {"kafka": 9092, "grpc-client": 9192, "grpc-nodes": 9193, "metrics": 9100}
    nodes = {"podSelector": {"matchLabels": LABEL}}  # no namespace: those of this one
    clients = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"tidelog-client": "true"}}}
    reached = {
        port: [caller for rule in policy["ingress"] for caller in rule["from"] if port in ports_of(rule)]
        for port in pod
    }
    assert reached["grpc-nodes"] == [nodes]
    assert reached["grpc-client"] == [nodes, clients]
    assert reached["kafka"] == [clients]
    ((metrics),) = reached["metrics"]
    assert metrics["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}
    peers, dns = policy["egress"]
    assert peers["to"] == [nodes]
    assert ports_of(peers) == {"grpc-nodes", "grpc-client"}
    assert ports_of(dns) == {53}
    assert all("ipBlock" not in target for target in dns["to"]), "nothing outside the cluster"


def ports_of(rule: dict[str, Any]) -> set[str | int]:
    return {port["port"] for port in rule["ports"]}


def test_listeners_of_the_overlay_for_production_require_certificates_and_only_one_is_for_nodes() -> None:
    """Goal: the node itself accepts configuration and environment of each pod, without `allow.insecure`."""
    pods = manifest.pods(manifest.PROD)
    names = [pod.host_names[-1] for pod in pods]
    assert names == [f"tidelog-{ordinal}.tidelog-nodes.tidelog.svc" for ordinal in range(3)]
    for pod, name in zip(pods, names, strict=True):
        text = manifest.config_text(manifest.PROD)
        config = parse(text, pod.environment, source="tidelog.toml", host_name=pod.name)
        assert config.node_id == pod.ordinal
        assert config.quorum.nodes == tuple(Endpoint(each, 9193) for each in names)
        assert not config.allow_insecure
        found = {each.name: each for each in config.listeners}
        assert {each.for_nodes for each in config.listeners if each.name != "NODES"} == {False}
        for listener, port in (("KAFKA", 9092), ("GRPC", 9192), ("NODES", 9193)):
            assert found[listener].advertised == Endpoint(name, port)
            assert found[listener].protocol is (ListenerProtocol.SSL if port == 9092 else ListenerProtocol.GRPC_SSL)
            assert (tls := found[listener].tls) is not None
            assert tls.requires_certificate
        assert config.authorizer.enabled, "who has a certificate may do nothing without an ACL"
        node = manifest.the("Certificate", overlay=manifest.CERT_MANAGER)["spec"]["commonName"]
        assert config.authorizer.super_users == {"User:CN=admin", f"User:CN={node}"}


def test_the_secret_is_mounted_as_a_directory_that_the_node_and_nobody_else_reads() -> None:
    pod = manifest.the("StatefulSet", overlay=manifest.PROD)["spec"]["template"]["spec"]
    (secret,) = (volume["secret"] for volume in pod["volumes"] if volume["name"] == "tls")
    assert secret == {"secretName": "tidelog-tls", "defaultMode": 0o440}
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "tls")
    assert mount == {"name": "tls", "mountPath": "/etc/tidelog-tls", "readOnly": True}, "subPath is never updated"
    config = manifest.config(manifest.PROD)
    files = [config[f"ssl.{name}.file"] for name in ("certificate", "key", "ca")]
    assert files == [f"{mount['mountPath']}/{key}" for key in ("tls.crt", "tls.key", "ca.crt")]


def test_probes_of_the_overlay_for_production_speak_tls_with_the_mounted_files() -> None:
    container, config = manifest.container(manifest.PROD), manifest.config(manifest.PROD)
    files = [f"--tls-{flag}={config[f'ssl.{key}.file']}" for flag, key in PROBE_FILES.items()]
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = container[name]
        assert "grpc" not in probe, "the kubelet's speak plain text"
        command = probe["exec"]["command"]
        assert command[:3] == ["python", "-m", "node.process.probe"]
        assert [each for each in command if each.startswith("--tls-")] == files
        assert ("--caught-up" in command) is (name == "readinessProbe")
        (timeout_ms,) = (int(each.partition("=")[2]) for each in command if each.startswith("--timeout-ms="))
        assert timeout_ms < probe["timeoutSeconds"] * 1000, "the probe itself says why it failed"
        assert command[-1] == "localhost:9192"


PROBE_FILES = {"ca": "ca", "cert": "certificate", "key": "key"}


def test_the_certificate_of_cert_manager_has_the_names_by_which_nodes_are_called() -> None:
    """gRPC accepts a wildcard for one label, before at least two others."""
    certificate = manifest.the("Certificate", overlay=manifest.CERT_MANAGER)["spec"]
    assert certificate["secretName"] == "tidelog-tls"
    assert {"server auth", "client auth"} <= set(certificate["usages"])
    names = certificate["dnsNames"]
    for pod in manifest.pods(manifest.PROD):
        _, _, domain = pod.host_names[-1].partition(".")
        assert f"*.{domain}" in names
        assert domain.count(".") >= 1
    service = manifest.the("Service", overlay=manifest.PROD)["metadata"]
    assert {f"{service['name']}.{service['namespace']}.svc", "localhost"} <= set(names)


def test_the_certificate_of_cert_manager_is_signed_by_an_authority_of_this_cluster_alone() -> None:
    certificate = manifest.the("Certificate", overlay=manifest.CERT_MANAGER)["spec"]
    issuer = manifest.the("Issuer", certificate["issuerRef"]["name"], manifest.CERT_MANAGER)["spec"]
    authority = manifest.the("Certificate", issuer["ca"]["secretName"], manifest.CERT_MANAGER)["spec"]
    root = manifest.the("Issuer", authority["issuerRef"]["name"], manifest.CERT_MANAGER)["spec"]
    assert authority["isCA"] is True
    assert authority["secretName"] == issuer["ca"]["secretName"]
    assert root == {"selfSigned": {}}


def test_clients_outside_find_each_node_by_the_name_that_it_advertises_and_its_certificate_has() -> None:
    objects = manifest.render(manifest.PROD, manifest.CERT_MANAGER, manifest.EXTERNAL)
    by_name = {name_of(each): each for each in objects}
    stateful = by_name["StatefulSet", "tidelog"]
    text = by_name["ConfigMap", "tidelog-config"]["data"]["tidelog.toml"]
    names = by_name["Certificate", "tidelog"]["spec"]["dnsNames"]
    declared = stateful["spec"]["template"]["spec"]["containers"][0]["ports"]
    ports = {port["name"]: port["containerPort"] for port in declared}
    for ordinal in range(stateful["spec"]["replicas"]):
        pod = f"tidelog-{ordinal}"
        service = by_name["Service", f"{pod}-external"]
        assert service["metadata"]["namespace"] == stateful["metadata"]["namespace"]
        assert service["spec"]["selector"] == {**LABEL, "statefulset.kubernetes.io/pod-name": pod}
        name = service["metadata"]["annotations"]["external-dns.alpha.kubernetes.io/hostname"]
        assert f"*.{name.partition('.')[2]}" in names
        environ = manifest.environment(stateful, ordinal)
        found = {each.name: each for each in parse(text, environ, source="x", host_name=pod).listeners}
        offered = {port["targetPort"]: port["port"] for port in service["spec"]["ports"]}
        for port, listener in (("kafka-external", "EXTERNAL_KAFKA"), ("grpc-external", "EXTERNAL_GRPC")):
            assert found[listener].advertised == Endpoint(name, offered[port])
            assert found[listener].bind == Endpoint("0.0.0.0", ports[port])
            assert found[listener].protocol.is_kafka is (port == "kafka-external")
            assert (tls := found[listener].tls) is not None and tls.requires_certificate
            assert not found[listener].for_nodes
        assert found["KAFKA"].advertised == Endpoint(manifest.Pod(ordinal, manifest.PROD).host_names[-1], 9092)
    everyone = by_name["NetworkPolicy", "tidelog"]["spec"]["ingress"][-1]
    assert "from" not in everyone
    assert ports_of(everyone) == {"kafka-external", "grpc-external"}, "nothing else is open to everyone"


@pytest.mark.parametrize("base", [manifest.BASE, manifest.PROD])
def test_nodes_have_the_store_of_the_remote_tier_with_credentials_from_a_secret_or_their_account(base: Path) -> None:
    objects = manifest.render(base, manifest.REMOTE_TIER)
    by_name = {name_of(each): each for each in objects}
    pod = by_name["StatefulSet", "tidelog"]["spec"]["template"]["spec"]
    assert config_of(objects).tiering.url == manifest.STORE_URL
    assert {"secretRef": {"name": "tidelog-object-store", "optional": True}} in pod["containers"][0]["envFrom"]
    assert ("ServiceAccount", pod["serviceAccountName"]) in by_name
    assert pod["automountServiceAccountToken"] is False, "a provider's webhook mounts its own token"
    assert not any("Role" in kind for kind, _ in by_name), "it has no rights"
    if base == manifest.PROD:
        assert ports_of(by_name["NetworkPolicy", "tidelog"]["spec"]["egress"][-1]) == {443}


def config_of(objects: Objects) -> NodeConfig:
    """As the first node reads it."""
    by_name = {name_of(each): each for each in objects}
    stateful, text = by_name["StatefulSet", "tidelog"], by_name["ConfigMap", "tidelog-config"]["data"]["tidelog.toml"]
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    variables = {**variables_of_maps(container, objects), **manifest.environment(stateful, 0)}
    return parse(text, variables, source="tidelog.toml", host_name="tidelog-0")


def test_the_overlays_for_an_object_store_that_the_documents_show_are_what_they_say(tmp_path: Path) -> None:
    """Each block alone, and the one for a role and the one for MinIO on top of the first."""
    text = (manifest.ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    section = text.partition("### History in an object store")[2].partition("\n### ")[0]
    first, role, minio = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL))
    first["resources"] = [os.path.relpath(manifest.PROD, tmp_path.resolve())]
    first["components"] = [os.path.relpath(manifest.REMOTE_TIER, tmp_path.resolve())]

    objects = overlay(tmp_path / "first", first)
    assert findings(objects) == []
    assert config_of(objects).tiering.url == manifest.STORE_URL

    with_role = overlay(tmp_path / "role", {**first, **role})
    assert findings(with_role) == []
    (account,) = (each for each in with_role if each["kind"] == "ServiceAccount")
    assert account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].startswith("arn:aws:iam::")

    with_minio = overlay(tmp_path / "minio", {**first, **minio})
    assert findings(with_minio) == []
    by_name = {name_of(each): each for each in with_minio}
    (container,) = by_name["StatefulSet", "tidelog"]["spec"]["template"]["spec"]["containers"]
    variables = variables_of_maps(container, with_minio)
    endpoint = urlsplit(variables["AWS_ENDPOINT_URL"])
    assert variables["AWS_ALLOW_HTTP"] == "true"
    assert ports_of(by_name["NetworkPolicy", "tidelog"]["spec"]["egress"][-1]) == {endpoint.port}


def overlay(home: Path, kustomization: dict[str, Any]) -> Objects:
    home.mkdir()
    paths = {key: [f"../{each}" for each in kustomization[key]] for key in ("resources", "components")}
    (home / "kustomization.yaml").write_text(json.dumps({**kustomization, **paths}))
    return manifest.render(home.resolve())


def test_the_operator_of_prometheus_is_given_the_rules_and_dashboards_that_others_load() -> None:
    objects = manifest.render(manifest.PROD, manifest.MONITORING)
    by_name = {name_of(each): each for each in objects}
    rules = yaml.safe_load((manifest.MONITORING / "prometheus/tidelog-alerts.yaml").read_text())
    assert by_name["PrometheusRule", "tidelog"]["spec"] == rules
    boards = {
        name: text
        for each in objects
        if each["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
        for name, text in each["data"].items()
    }
    assert boards == {file.name: file.read_text() for file in (manifest.MONITORING / "grafana").glob("*.json")}
    monitor = by_name["ServiceMonitor", "tidelog"]["spec"]
    service = by_name["Service", "tidelog-metrics"]
    job = service["metadata"]["labels"][monitor["jobLabel"]]
    assert {name for rule in named_jobs(rules) for name in rule} == {job}
    assert service["spec"]["publishNotReadyAddresses"] is True, "a node that is not ready says why in its metrics"


def named_jobs(rules: dict[str, Any]) -> Iterator[list[str]]:
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield re.findall(r'job="(\w+)"', rule["expr"])


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
