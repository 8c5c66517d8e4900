"""`make k8s-check` accepts every kustomization of deploy/, and sees each way in which a manifest can be wrong."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.deploy.check import findings
from tests.deploy.kustomizations import DEPLOY, Objects, directories, rendered
from tests.integration import manifest

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl to render manifests with")

Break = Callable[["Broken"], object]


def test_every_kustomization_is_accepted() -> None:
    found = {name: findings(objects) for name, objects in rendered().items()}
    assert found == {name: [] for name in found}
    assert len(found) == len(directories("Kustomization")) + len(directories("Component")) + 1


class Broken:
    """The objects of the overlay for production with all components, to be changed."""

    def __init__(self, objects: Objects) -> None:
        self.objects = copy.deepcopy(objects)

    def the(self, kind: str, name: str = "") -> dict[str, Any]:
        (found,) = (each for each in self.objects if each["kind"] == kind and name in ("", each["metadata"]["name"]))
        return found

    @property
    def pod(self) -> dict[str, Any]:
        pod: dict[str, Any] = self.the("StatefulSet")["spec"]["template"]["spec"]
        return pod

    @property
    def node(self) -> dict[str, Any]:
        node: dict[str, Any] = self.pod["containers"][0]
        return node

    @property
    def rule(self) -> dict[str, Any]:
        rule: dict[str, Any] = self.the("PrometheusRule")["spec"]["groups"][0]["rules"][0]
        return rule

    @property
    def endpoint(self) -> dict[str, Any]:
        endpoint: dict[str, Any] = self.the("ServiceMonitor")["spec"]["endpoints"][0]
        return endpoint

    @property
    def apply(self) -> dict[str, Any]:
        container: dict[str, Any] = self.the("Job")["spec"]["template"]["spec"]["containers"][0]
        return container

    @property
    def archive(self) -> dict[str, Any]:
        container: dict[str, Any] = self.archive_pod["containers"][0]
        return container

    @property
    def archive_pod(self) -> dict[str, Any]:
        pod: dict[str, Any] = self.the("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        return pod

    def applied(self, text: str) -> None:
        """Change the file that the Job applies."""
        (found,) = (each for each in self.objects if "state.toml" in each.get("data", ()))
        found["data"]["state.toml"] = text

    def variable(self, name: str) -> dict[str, Any]:
        (found,) = (each for each in self.node["env"] if each["name"] == name)
        return found  # type: ignore[no-any-return]

    @property
    def store(self) -> dict[str, str]:
        """The variables of the remote tier."""
        (found,) = (each for each in self.objects if each["metadata"]["name"].startswith("tidelog-remote-tier"))
        return found["data"]  # type: ignore[no-any-return]

    def probe(self, **handler: Any) -> None:
        self.node["livenessProbe"] = {"periodSeconds": 10, **handler}

    def text(self, old: str, new: str) -> None:
        """Change the configuration of the nodes."""
        (found,) = (each for each in self.objects if "tidelog.toml" in each.get("data", ()))
        assert old in found["data"]["tidelog.toml"]
        found["data"]["tidelog.toml"] = found["data"]["tidelog.toml"].replace(old, new)


def without(container: dict[str, Any] | list[Any], key: Any) -> None:
    del container[key]


MISTAKES: dict[str, tuple[Break, str]] = {
    # the object store
    "a variable of a ConfigMap that nothing reads": (
        lambda it: it.store.update(TIDELOG_REMOTE_STORAGE_URL="s3://b/p"),
        "variable TIDELOG_REMOTE_STORAGE_URL of a ConfigMap: nothing reads it",
    ),
    "a URL of no store": (
        lambda it: it.store.update(TIDELOG_REMOTE_LOG_STORAGE_URL="https://b.s3.amazonaws.com"),
        "is not the URL of an object store",
    ),
    "a ConfigMap of variables that is missing": (
        lambda it: it.node["envFrom"].append({"configMapRef": {"name": "other"}}),
        "envFrom: there is no ConfigMap other",
    ),
    "a Secret without which no pod starts": (
        lambda it: without(it.node["envFrom"][1]["secretRef"], "optional"),
        "envFrom: without the Secret tidelog-object-store, which is not optional",
    ),
    # schemas
    "an unknown field": (
        lambda it: it.pod.update(terminationGraceSeconds=1),
        "'terminationGraceSeconds' was unexpected",
    ),
    "a wrong type": (lambda it: it.the("StatefulSet")["spec"].update(replicas="3"), "'3' is not of type"),
    "a missing field": (
        lambda it: without(it.the("Service", "tidelog")["spec"]["ports"][0], "port"),
        "'port' is a required",
    ),
    "a kind that Kubernetes has no more": (
        lambda it: it.the("PodDisruptionBudget").update(apiVersion="policy/v1beta1"),
        "Kubernetes 1.30 has no PodDisruptionBudget of policy/v1beta1",
    ),
    "an unknown field of cert-manager": (
        lambda it: it.the("Certificate", "tidelog")["spec"].update(secret="x"),
        "'secret' was unexpected",
    ),
    # the Pod Security Standard "restricted"
    "the network of the machine": (lambda it: it.pod.update(hostNetwork=True), "hostNetwork is set"),
    "a volume of the machine": (
        lambda it: it.pod["volumes"].append({"name": "tmp2", "hostPath": {"path": "/"}}),
        "volume tmp2 is of the type hostPath",
    ),
    "user 0": (lambda it: it.pod["securityContext"].update(runAsUser=0), "the pod runs as user 0"),
    "root allowed": (lambda it: without(it.pod["securityContext"], "runAsNonRoot"), "runAsNonRoot is not true"),
    "no seccomp": (lambda it: without(it.pod["securityContext"], "seccompProfile"), "seccompProfile is not set"),
    "seccomp off": (
        lambda it: it.node["securityContext"].update(seccompProfile={"type": "Unconfined"}),
        "the seccomp profile of it is Unconfined",
    ),
    "AppArmor off": (
        lambda it: it.pod["securityContext"].update(appArmorProfile={"type": "Unconfined"}),
        "the AppArmor profile of the pod is Unconfined",
    ),
    "SELinux": (
        lambda it: it.pod["securityContext"].update(seLinuxOptions={"user": "root"}),
        "the SELinux options of the pod are not allowed",
    ),
    "a sysctl": (
        lambda it: it.pod["securityContext"].update(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
        "sysctl kernel.msgmax is not a safe one",
    ),
    "privileged": (lambda it: it.node["securityContext"].update(privileged=True), "privileged is set"),
    "more rights": (
        lambda it: without(it.node["securityContext"], "allowPrivilegeEscalation"),
        "allowPrivilegeEscalation is not false",
    ),
    "capabilities kept": (
        lambda it: it.node["securityContext"].update(capabilities={}),
        "capabilities.drop does not contain ALL",
    ),
    "a capability": (
        lambda it: it.node["securityContext"]["capabilities"].update(add=["SYS_TIME"]),
        "capabilities.add has SYS_TIME",
    ),
    "all of /proc": (lambda it: it.node["securityContext"].update(procMount="Unmasked"), "procMount is Unmasked"),
    "a port of the machine": (lambda it: it.node["ports"][0].update(hostPort=9092), "(hostPort)"),
    "a probe of another host": (
        lambda it: it.probe(httpGet={"port": 9100, "path": "/healthz", "host": "example.com"}),
        "names a host",
    ),
    # what the node does not have
    "an unknown key": (
        lambda it: it.text("min.insync.replicas", "min.insync.replica"),
        "unknown setting min.insync.replica",
    ),
    "an unknown variable": (
        lambda it: it.variable("TIDELOG_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS").update(name="TIDELOG_SEEDS"),
        "variable TIDELOG_SEEDS: nothing reads it",
    ),
    "a value that the node refuses": (
        lambda it: it.variable("TIDELOG_ADVERTISED_LISTENERS").update(value="KAFKA://x"),
        "TIDELOG_ADVERTISED_LISTENERS",
    ),
    "a variable twice": (
        lambda it: it.node["env"].append({"name": "TIDELOG_POD_NAME", "value": "tidelog-0"}),
        "TIDELOG_POD_NAME is set twice",
    ),
    "a variable too late": (lambda it: it.node["env"].reverse(), "$(TIDELOG_POD_NAME) is not set before it"),
    "a port where nothing listens": (
        lambda it: it.variable("TIDELOG_LISTENERS").update(
            value=it.variable("TIDELOG_LISTENERS")["value"].replace(":9092", ":9095")
        ),
        "port kafka: the node does not listen at 9092",
    ),
    "a listener without its port": (lambda it: without(it.node["ports"], -1), "which the container does not declare"),
    "readiness before replicas are in sync": (
        lambda it: it.node["readinessProbe"]["exec"]["command"].remove("--caught-up"),
        "a rolling update would not wait for replicas",
    ),
    "a node killed while it catches up": (
        lambda it: it.node["livenessProbe"]["exec"]["command"].insert(3, "--caught-up"),
        "startupProbe and livenessProbe must not wait",
    ),
    "no time for the wait before the drain": (
        lambda it: it.pod.update(terminationGracePeriodSeconds=60),
        "terminationGracePeriodSeconds is 60; preStop, wait, drain and closing may take 108 s",
    ),
    "a wait that the default grace has no room for": (
        lambda it: without(it.pod, "terminationGracePeriodSeconds"),
        "terminationGracePeriodSeconds is 30",
    ),
    "no wait": (
        lambda it: it.text('"controlled.shutdown.wait.ms" = 60_000', ""),
        "controlled.shutdown.wait.ms is 0",
    ),
    "SIGTERM before lost nodes are known": (
        lambda it: it.node["lifecycle"]["preStop"]["sleep"].update(seconds=2),
        "preStop takes 2 s",
    ),
    "a gRPC probe at a listener with TLS": (
        lambda it: it.probe(grpc={"port": 9192}),
        "which the kubelet's gRPC probes",
    ),
    "a gRPC probe of Kafka's port": (lambda it: it.probe(grpc={"port": 9092}), "no listener with gRPC is at port 9092"),
    "a probe of no service": (
        lambda it: it.probe(grpc={"port": 9192, "service": "tidelog.redy"}),
        "the node has no health service tidelog.redy",
    ),
    "a probe by HTTP elsewhere": (
        lambda it: it.probe(httpGet={"port": 9101, "path": "/healthz"}),
        "metrics.listener is not at port 9101",
    ),
    "a probe of no page": (
        lambda it: it.probe(httpGet={"port": 9100, "path": "/health"}),
        "the node answers nothing at /health",
    ),
    "a probe of no module": (
        lambda it: it.probe(exec={"command": ["python", "-m", "node.probe", "localhost:9192"]}),
        "python -m node.probe is not the probe of a node",
    ),
    "a probe with a wrong option": (
        lambda it: it.node["readinessProbe"]["exec"]["command"].insert(3, "--redy"),
        "the probe refuses its arguments",
    ),
    "a probe of no listener": (
        lambda it: it.probe(exec={"command": ["python", "-m", "node.process.probe", "localhost:9092"]}),
        "no listener with gRPC is at localhost:9092",
    ),
    "a Job with a wrong option": (
        lambda it: it.apply["command"].append("--dif"),
        "Job tidelog-apply: tidelog apply: No such option '--dif'",
    ),
    "a Job of no command": (
        lambda it: it.apply.update(command=["tidelog", "aply", "--file", "/etc/tidelog-apply"]),
        "tidelog aply is no command of the client",
    ),
    "a Job without its files": (
        lambda it: it.apply.update(command=["tidelog", "apply", "--file", "/etc/apply"]),
        "no ConfigMap with files is mounted there",
    ),
    "a Job with an unknown variable": (
        lambda it: it.apply["env"].append({"name": "TIDELOG_TLS_KEYS", "value": "x"}),
        "variable TIDELOG_TLS_KEYS: nothing reads it",
    ),
    "a file that the Job refuses": (
        lambda it: it.applied("[topics.a]\npartition = 1"),
        "/etc/tidelog-apply/state.toml: topics.a: unknown key 'partition'",
    ),
    "a Job with rights": (
        lambda it: without(it.apply["securityContext"], "capabilities"),
        "Job tidelog-apply: container apply: capabilities.drop does not contain ALL",
    ),
    "a CronJob with a wrong option": (
        lambda it: it.archive["command"].append("--verfy"),
        "CronJob tidelog-archive: tidelog job archive: No such option '--verfy'",
    ),
    "a CronJob with a wrong value": (
        lambda it: it.archive["command"].extend(["--pattern", "("]),
        "CronJob tidelog-archive: tidelog job archive: ",
    ),
    "a CronJob of no job": (
        lambda it: it.archive.update(command=["tidelog", "job", "archiv", "--to", "/archive"]),
        "tidelog job archiv is no command of the client",
    ),
    "a CronJob that writes beside its volume": (
        lambda it: it.archive["command"].extend(["--to", "/archives"]),
        "--to /archives: no volume is mounted there",
    ),
    "no such claim": (
        lambda it: it.archive_pod["volumes"][0].update(persistentVolumeClaim={"claimName": "archive"}),
        "volume archive: there is no PersistentVolumeClaim archive",
    ),
    "a CronJob with rights": (
        lambda it: without(it.archive["securityContext"], "capabilities"),
        "CronJob tidelog-archive: container archive: capabilities.drop does not contain ALL",
    ),
    "a rule of no metric": (
        lambda it: it.rule.update(expr="tidelog_redy == 0"),
        "PrometheusRule tidelog: no node has a metric tidelog_redy",
    ),
    "a dashboard of no metric": (
        lambda it: it.the("ConfigMap", "tidelog-dashboard-node").update(data={"x.json": '{"expr": "tidelog_redy"}'}),
        "ConfigMap tidelog-dashboard-node: no node has a metric tidelog_redy",
    ),
    "metrics at another path": (lambda it: it.endpoint.update(path="/metric"), "the node answers nothing at /metric"),
    # what the manifests do not have
    "no such ConfigMap": (
        lambda it: it.pod["volumes"][0].update(configMap={"name": "tidelog-other"}),
        "there is no ConfigMap tidelog-other",
    ),
    "no such volume": (
        lambda it: it.node["volumeMounts"][0].update(name="disk"),
        "volumeMount disk: there is no such volume",
    ),
    "a log directory that ends with the pod": (
        lambda it: it.variable("TIDELOG_LOG_DIRS").update(value="/var/lib/tidelog/data,/tmp/data"),
        "log.dirs: no claim of the StatefulSet is mounted at /tmp/data",
    ),
    "two log directories on one volume": (
        lambda it: it.variable("TIDELOG_LOG_DIRS").update(value="/var/lib/tidelog/data,/var/lib/tidelog/second"),
        "log.dirs: /var/lib/tidelog/second is on the same volume as another directory",
    ),
    "a claim without a log directory": (
        lambda it: it.variable("TIDELOG_LOG_DIRS").update(value="/var/lib/tidelog/data"),
        "claim second: no log directory is on it",
    ),
    "a volume that is not mounted": (lambda it: without(it.node["volumeMounts"], 0), "is not mounted"),
    "no such file": (
        lambda it: it.node.update(args=["--config", "/etc/tidelog/t.toml"]),
        "no ConfigMap is mounted with that file",
    ),
    "no such Service": (
        lambda it: it.the("StatefulSet")["spec"].update(serviceName="nodes"),
        "there is no Service nodes",
    ),
    "no such priority": (
        lambda it: it.pod.update(priorityClassName="tidelog-high"),
        "there is no PriorityClass tidelog-high",
    ),
    "nodes spread apart from other pods": (
        lambda it: it.pod["topologySpreadConstraints"][0]["labelSelector"].update(matchLabels={"app": "tidelog"}),
        "topologyKey topology.kubernetes.io/zone: no pod has the labels",
    ),
    "no memory requested": (
        lambda it: without(it.node["resources"]["requests"], "memory"),
        "resources.requests has no memory",
    ),
    "a node that is found only when it is ready": (
        lambda it: without(it.the("Service", "tidelog-nodes")["spec"], "publishNotReadyAddresses"),
        "Service tidelog-nodes: publishNotReadyAddresses is not true",
    ),
    "a load balancer that knows only nodes that are ready": (
        lambda it: it.the("Service", "tidelog-1-external")["spec"].update(publishNotReadyAddresses=False),
        "Service tidelog-1-external: publishNotReadyAddresses is not true",
    ),
    "a node without its load balancer": (
        lambda it: it.the("StatefulSet")["spec"].update(replicas=4),
        "no Service is for tidelog-3 alone, as for tidelog-0",
    ),
    "a Service of no pod": (
        lambda it: it.the("Service", "tidelog")["spec"].update(selector={"app": "tidelog"}),
        "no pod has the labels",
    ),
    "a Service of no port": (
        lambda it: it.the("Service", "tidelog")["spec"]["ports"][0].update(targetPort="client"),
        "the pods have no port client",
    ),
    "a ServiceMonitor of another port": (
        lambda it: it.endpoint.update(port="kafka"),
        "port kafka of the Service is not the port of metrics",
    ),
    "a ServiceMonitor of no Service": (
        lambda it: it.the("ServiceMonitor")["spec"]["selector"].update(matchLabels={"app": "tidelog"}),
        "0 Services have the labels",
    ),
    "a policy of no port": (
        lambda it: it.the("NetworkPolicy")["spec"]["ingress"][0]["ports"][0].update(port="client"),
        "the pods have no port client",
    ),
    "a budget of no pod": (
        lambda it: it.the("PodDisruptionBudget")["spec"]["selector"].update(matchLabels={"app": "tidelog"}),
        "no pod has the labels",
    ),
}


@pytest.fixture(scope="module")
def sound() -> Objects:
    return manifest.render(manifest.PROD, *directories("Component"))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(sound: Objects, mistake: str) -> None:
    change, expected = MISTAKES[mistake]
    broken = Broken(sound)
    change(broken)
    found = [each for each in findings(broken.objects) if expected in each]
    assert found, json.dumps(findings(broken.objects), indent=1)


def test_each_directory_with_manifests_is_part_of_a_kustomization() -> None:
    """A file that no kustomization names is applied by nobody, and checked by nothing."""
    homes = {*directories("Kustomization"), *directories("Component")}
    manifests = [file for file in DEPLOY.rglob("*.yaml") if "apiVersion:" in file.read_text(encoding="utf-8")]
    assert [file for file in manifests if not homes & {file.parent, *file.parent.parents}] == []
