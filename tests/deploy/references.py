"""Settings, variables, ports, probes, paths and metrics that manifests name exist in this repository, and the objects
that they name are among them."""

from __future__ import annotations

import importlib.util
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, Final

import click

from node.config import SETTINGS, NodeConfig, parse
from node.listeners.grpc.health import CAUGHT_UP, READY
from node.observability.metrics import TABLES
from node.observability.metrics_server import OWN_PATHS
from node.process import probe
from tests.deploy.kustomizations import Objects, name_of
from tests.deploy.pod_security import pod_spec
from tests.integration import manifest
from tidelog.cli.app import app
from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.job_commands import JOBS
from tidelog.cli.state_files import read_state
from tidelog.client_variables import ClientVariable
from tidelog.errors import InvalidConfig
from tidelog.jobs.job_frame import Job
from tidelog.tiering.obstore_store import ensure_store_url

OTHER_VARIABLES: Final = frozenset(("TIDELOG_POD_NAME", *ClientVariable))
"""What a node, or `tidelog` in its pod, reads besides the settings."""

STORE_VARIABLES: Final = ("AWS_", "AZURE_", "GOOGLE_")
"""How the variables begin that the library of object stores reads."""

GRACE_S: Final = 30
"""Kubernetes' terminationGracePeriodSeconds where none is given."""

CLOSE_S: Final = 15
"""For the answers in progress, and for closing the logs of a thousand partitions."""

_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_METRICS: Final = {metric.name: metric.type for table in TABLES for metric in table.metrics}


def findings(objects: Objects) -> Iterator[str]:
    """What is named and does not exist."""
    for each in objects:
        yield from (f"{name_of(each)}: {problem}" for problem in (*_selected(each, objects), *_by_kind(each, objects)))


def _by_kind(each: Mapping[str, Any], objects: Objects) -> Iterator[str]:
    match each["kind"]:
        case "StatefulSet":
            yield from _nodes(each, objects)
        case "Job" | "CronJob":
            yield from _job(each, objects)
        case "ServiceMonitor":
            yield from _scraped(each, objects)
        case "PrometheusRule" | "ConfigMap":
            yield from _unknown_metrics(each)


def _nodes(stateful: Mapping[str, Any], objects: Objects) -> Iterator[str]:
    """A StatefulSet of nodes: the node itself reads configuration and variables of each pod."""
    spec = stateful["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    yield from _volumes(stateful, container, objects)
    yield from _variables(container)
    yield from _variables_from(container, objects)
    yield from _placement(stateful, container, objects)
    yield from _reached_by_name(stateful, objects)
    if stateful["spec"]["serviceName"] not in _names("Service", objects):
        yield f"there is no Service {stateful['spec']['serviceName']}"
    text = _mounted_text(spec, container, objects)
    if text is None:
        yield f"--config {container['args'][-1]}: no ConfigMap is mounted with that file"
        return
    from_maps = variables_of_maps(container, objects)
    try:
        configs = [
            parse(text, {**from_maps, **variables}, source="tidelog.toml", host_name=variables["TIDELOG_POD_NAME"])
            for variables in (
                manifest.environment(stateful, ordinal) for ordinal in range(stateful["spec"]["replicas"])
            )
        ]
        if url := configs[0].tiering.url:
            ensure_store_url(url)
    except InvalidConfig as error:
        yield error.message
        return
    yield from _ports(container, configs[0])
    yield from _log_directories(stateful, container, configs[0])
    yield from _grace(spec, container, configs[0])
    if not _asks_for_sync(container["readinessProbe"]):
        yield f"readinessProbe: it does not ask for {CAUGHT_UP}: a rolling update would not wait for replicas"
    if any(_asks_for_sync(container[name]) for name in ("startupProbe", "livenessProbe")):
        yield "a node that catches up is alive: startupProbe and livenessProbe must not wait for that"
    for name in _PROBES:
        yield from (f"{name}: {problem}" for problem in _probe(container[name], configs[0]))


def _job(job: Mapping[str, Any], objects: Objects) -> Iterator[str]:
    """A Job that runs a command of the client: the command line itself reads its options, and `apply` its files."""
    spec = pod_spec(job) or {}
    (container,) = spec["containers"]
    yield from _volumes(job, container, objects)
    yield from _variables(container)
    words = container["command"]
    length = 3 if words[1] == "job" else 2
    name, arguments = " ".join(words[:length]), words[length:]
    command = _client_command(words)
    if command is None:
        yield f"{name} is no command of the client"
        return
    try:
        with command.make_context(name, list(arguments)) as ctx:
            options = ctx.params
    except (click.ClickException, WrongUsage) as error:
        yield f"{name}: {error}"
        return
    for place in options.get("file", ()):
        yield from _applied_files(spec, container, place, objects)
    target = PurePosixPath(options.get("to") or "")
    if target.is_absolute() and not any(target.is_relative_to(each["mountPath"]) for each in container["volumeMounts"]):
        yield f"--to {target}: no volume is mounted there"


def _client_command(words: Sequence[str]) -> click.Command | None:
    """What parses the arguments of `tidelog NAME` or `tidelog job NAME`; None: there is no such command."""
    program, name, *more = words
    if program != "tidelog":
        return None
    if name != "job":
        return app.loaded(name)
    if more[0] not in JOBS:
        return None
    job: Job[Any] = import_module(f"tidelog.jobs.{more[0]}").JOB
    return job.command()


def _applied_files(
    spec: Mapping[str, Any], container: Mapping[str, Any], place: str, objects: Objects
) -> Iterator[str]:
    data = _mounted_data(spec, container, PurePosixPath(place), objects)
    if not data:
        yield f"--file {place}: no ConfigMap with files is mounted there"
        return
    with tempfile.TemporaryDirectory() as home:
        for name, text in data.items():
            (Path(home) / name).write_text(text)
        try:
            read_state([home])
        except InvalidConfig as error:
            yield error.message.replace(home, place)


def _mounted_text(spec: Mapping[str, Any], container: Mapping[str, Any], objects: Objects) -> str | None:
    """The file that `--config` names."""
    file = PurePosixPath(container["args"][container["args"].index("--config") + 1])
    return _mounted_data(spec, container, file.parent, objects).get(file.name)


def _mounted_data(
    spec: Mapping[str, Any], container: Mapping[str, Any], place: PurePosixPath, objects: Objects
) -> Mapping[str, str]:
    """The files of the ConfigMap that is mounted at that place; none if there is none."""
    for mount in container["volumeMounts"]:
        if mount["mountPath"] == str(place):
            for volume in spec["volumes"]:
                if volume["name"] == mount["name"]:
                    found = _names("ConfigMap", objects).get(volume.get("configMap", {}).get("name"), {})
                    return dict(found.get("data", {}))
    return {}


def _names(kind: str, objects: Objects) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def _volumes(workload: Mapping[str, Any], container: Mapping[str, Any], objects: Objects) -> Iterator[str]:
    volumes = {each["name"]: each for each in (pod_spec(workload) or {})["volumes"]}
    claims = {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())}
    mounts = {each["name"] for each in container["volumeMounts"]}
    yield from (f"volumeMount {name}: there is no such volume" for name in sorted(mounts - volumes.keys() - claims))
    yield from (f"volume {name} is not mounted" for name in sorted((volumes.keys() | claims) - mounts))
    for name, volume in volumes.items():
        for kind, wanted in (
            ("ConfigMap", volume.get("configMap", {}).get("name")),
            ("PersistentVolumeClaim", volume.get("persistentVolumeClaim", {}).get("claimName")),
        ):
            if wanted is not None and wanted not in _names(kind, objects):
                yield f"volume {name}: there is no {kind} {wanted}"


def _log_directories(stateful: Mapping[str, Any], container: Mapping[str, Any], config: NodeConfig) -> Iterator[str]:
    """What is elsewhere is lost with the pod, or cannot be written; what shares a volume is full at the same time."""
    claims = {each["metadata"]["name"] for each in stateful["spec"].get("volumeClaimTemplates", ())}
    places = {each["name"]: each["mountPath"] for each in container["volumeMounts"] if each["name"] in claims}
    used: set[str] = set()
    for directory in config.log_directories:
        found = {name for name, place in places.items() if PurePosixPath(directory).is_relative_to(place)}
        if not found:
            yield f"log.dirs: no claim of the StatefulSet is mounted at {directory}"
        elif found <= used:
            yield f"log.dirs: {directory} is on the same volume as another directory"
        used |= found
    yield from (f"claim {name}: no log directory is on it" for name in sorted(places.keys() - used))


def _variables(container: Mapping[str, Any]) -> Iterator[str]:
    """Nodes ignore variables whose first word begins no setting; the kubelet leaves unknown `$(NAME)` as they are."""
    known = OTHER_VARIABLES | {each.variable for each in SETTINGS.values()}
    values = [entry.get("value", "") for entry in container["env"]]
    used = {name for value in values for name in re.findall(r"\$\((\w+)\)", value)}
    defined: set[str] = set()
    for entry, value in zip(container["env"], values, strict=True):
        name = entry["name"]
        if name in defined:
            yield f"variable {name} is set twice"
        if name not in known | used:
            yield f"variable {name}: nothing reads it"
        for missing in sorted(set(re.findall(r"\$\((\w+)\)", value)) - defined):
            yield f"variable {name}: $({missing}) is not set before it"
        defined.add(name)


def variables_of_maps(container: Mapping[str, Any], objects: Objects) -> dict[str, str]:
    """The variables that a container has from whole ConfigMaps; what `env` sets besides wins over them."""
    maps = [each["configMapRef"]["name"] for each in container.get("envFrom", ()) if "configMapRef" in each]
    found = _names("ConfigMap", objects)
    return {name: value for each in maps for name, value in found.get(each, {}).get("data", {}).items()}


def _variables_from(container: Mapping[str, Any], objects: Objects) -> Iterator[str]:
    for each in container.get("envFrom", ()):
        if (name := each.get("configMapRef", {}).get("name")) is not None and name not in _names("ConfigMap", objects):
            yield f"envFrom: there is no ConfigMap {name}"
        if not each.get("secretRef", {"optional": True}).get("optional", False):
            yield f"envFrom: without the Secret {each['secretRef']['name']}, which is not optional, no pod starts"
    known = {each.variable for each in SETTINGS.values()}
    for name in sorted(variables_of_maps(container, objects)):
        if name not in known and not name.startswith(STORE_VARIABLES):
            yield f"variable {name} of a ConfigMap: nothing reads it"


def _ports(container: Mapping[str, Any], config: NodeConfig) -> Iterator[str]:
    opened = {each.bind.port: f"listener {each.name}" for each in config.listeners}
    if config.metrics_bind is not None:
        opened[config.metrics_bind.port] = "metrics.listener"
    declared = {each["containerPort"]: each["name"] for each in container["ports"]}
    for port in sorted(declared.keys() - opened.keys()):
        yield f"port {declared[port]}: the node does not listen at {port}"
    for port in sorted(opened.keys() - declared.keys()):
        yield f"{opened[port]} is at port {port}, which the container does not declare"


def _asks_for_sync(handler: Mapping[str, Any]) -> bool:
    if "grpc" in handler:
        return bool(handler["grpc"].get("service") == CAUGHT_UP)
    return "--caught-up" in handler.get("exec", {}).get("command", ())


def _placement(stateful: Mapping[str, Any], container: Mapping[str, Any], objects: Objects) -> Iterator[str]:
    """Where the pods may run, what they take there, and before whom."""
    template = stateful["spec"]["template"]
    spec, labels = template["spec"], template["metadata"]["labels"]
    wanted = spec.get("priorityClassName")
    if wanted is not None and wanted not in _names("PriorityClass", objects):
        yield f"there is no PriorityClass {wanted}"
    apart = spec.get("affinity", {}).get("podAntiAffinity", {})
    terms = [
        *spec.get("topologySpreadConstraints", ()),
        *apart.get("requiredDuringSchedulingIgnoredDuringExecution", ()),
        *(each["podAffinityTerm"] for each in apart.get("preferredDuringSchedulingIgnoredDuringExecution", ())),
    ]
    for each in terms:
        selector = each["labelSelector"]["matchLabels"]
        if not selector.items() <= labels.items():
            yield f"topologyKey {each['topologyKey']}: no pod has the labels {json.dumps(selector)}"
    resources = container.get("resources", {})
    for kind, name in (("requests", "cpu"), ("requests", "memory"), ("limits", "memory")):
        if name not in resources.get(kind, {}):
            yield f"resources.{kind} has no {name}"


_OF_ONE_POD: Final = "statefulset.kubernetes.io/pod-name"


def _reached_by_name(stateful: Mapping[str, Any], objects: Objects) -> Iterator[str]:
    """A node that catches up is not ready, and leads already: clients must find it by the name of its Service."""
    services = _names("Service", objects).values()
    of_one_pod = [each for each in services if _OF_ONE_POD in each["spec"].get("selector", {})]
    for service in (*of_one_pod, *(each for each in services if each["spec"].get("clusterIP") == "None")):
        if service["spec"].get("publishNotReadyAddresses") is not True:
            yield f"{name_of(service)}: publishNotReadyAddresses is not true: nodes that catch up are not found"
    pods = {f"{stateful['metadata']['name']}-{ordinal}" for ordinal in range(stateful["spec"]["replicas"])}
    reached = {each["spec"]["selector"][_OF_ONE_POD] for each in of_one_pod}
    if reached:
        yield from (f"no Service is for {pod} alone, as for {min(reached)}" for pod in sorted(pods - reached))


def _grace(spec: Mapping[str, Any], container: Mapping[str, Any], config: NodeConfig) -> Iterator[str]:
    """The kubelet kills a pod that has not ended in time: its logs are then not closed clean."""
    times = config.replication
    pause_s = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    if pause_s * 1_000 <= times.session_ms:
        yield f"preStop takes {pause_s} s: a node that is lost is known as lost only after {times.session_ms} ms"
    if not times.stop_wait_ms:
        yield "controlled.shutdown.wait.ms is 0: the pod ends also while the other nodes cannot do without it"
    wanted_s = pause_s + (times.stop_wait_ms + times.drain_ms_max) // 1_000 + CLOSE_S
    if (grace_s := spec.get("terminationGracePeriodSeconds", GRACE_S)) < wanted_s:
        yield f"terminationGracePeriodSeconds is {grace_s}; preStop, wait, drain and closing may take {wanted_s} s"


def _probe(handler: Mapping[str, Any], config: NodeConfig) -> Iterator[str]:
    if (grpc := handler.get("grpc")) is not None:
        listeners = [each for each in config.listeners if each.bind.port == grpc["port"]]
        if not listeners or listeners[0].protocol.is_kafka:
            yield f"no listener with gRPC is at port {grpc['port']}"
        elif listeners[0].protocol.has_tls:
            yield f"the listener at port {grpc['port']} has TLS, which the kubelet's gRPC probes do not speak"
        if grpc.get("service", "") not in ("", READY, CAUGHT_UP):
            yield f"the node has no health service {grpc['service']}"
    elif (http := handler.get("httpGet")) is not None:
        if config.metrics_bind is None or http["port"] not in (config.metrics_bind.port, "metrics"):
            yield f"metrics.listener is not at port {http['port']}"
        if http["path"].encode() not in OWN_PATHS:
            yield f"the node answers nothing at {http['path']}"
    else:
        yield from _command(handler["exec"]["command"], config)


def _command(command: list[str], config: NodeConfig) -> Iterator[str]:
    interpreter, _module, module, *arguments = command
    if (
        (interpreter, _module) != ("python", "-m")
        or module != probe.__name__
        or importlib.util.find_spec(module) is None
    ):
        yield f"{' '.join(command[:3])} is not the probe of a node"
        return
    try:
        options = probe.probe_parser().parse_args(arguments)
    except SystemExit:
        yield f"the probe refuses its arguments: {' '.join(arguments)}"
        return
    port = options.address.rpartition(":")[2]
    if not any(str(each.bind.port) == port and not each.protocol.is_kafka for each in config.listeners):
        yield f"no listener with gRPC is at {options.address}"


def _selected(each: Mapping[str, Any], objects: Objects) -> Iterator[str]:
    """Services, budgets and policies choose pods, and name ports of these."""
    spec = each.get("spec", {})
    selectors = {"Service": spec.get("selector"), "PodDisruptionBudget": _labels(spec.get("selector"))}
    selectors["NetworkPolicy"] = _labels(spec.get("podSelector"))
    selector = selectors.get(each["kind"])
    if selector is None:
        return
    containers = []
    for other in objects:
        if other["kind"] == "StatefulSet":
            template = other["spec"]["template"]
            chosen = {
                _OF_ONE_POD: {f"{other['metadata']['name']}-{ordinal}" for ordinal in range(other["spec"]["replicas"])},
                **{label: {value} for label, value in template["metadata"]["labels"].items()},
            }
            if all(value in chosen.get(label, ()) for label, value in selector.items()):
                containers += (pod_spec(other) or {})["containers"]
    if not containers:
        yield f"no pod has the labels {json.dumps(selector)}"
    names = {port["name"] for container in containers for port in container["ports"]}
    if each["kind"] == "Service":
        wanted = [port["targetPort"] for port in spec["ports"]]
    else:
        wanted = [port["port"] for rule in spec.get("ingress", ()) for port in rule["ports"]]
    yield from (f"the pods have no port {port}" for port in wanted if port not in names)


def _labels(selector: Mapping[str, Any] | None) -> Mapping[str, str] | None:
    return None if selector is None else selector.get("matchLabels")


def _scraped(monitor: Mapping[str, Any], objects: Objects) -> Iterator[str]:
    labels = monitor["spec"]["selector"]["matchLabels"]
    services = [
        each
        for each in _names("Service", objects).values()
        if labels.items() <= each["metadata"].get("labels", {}).items()
    ]
    if len(services) != 1:
        yield f"{len(services)} Services have the labels {json.dumps(labels)}; one must, or nodes are scraped twice"
    ports = {port["name"]: port["targetPort"] for each in services for port in each["spec"]["ports"]}
    for endpoint in monitor["spec"]["endpoints"]:
        if ports.get(endpoint["port"]) != "metrics":
            yield f"port {endpoint['port']} of the Service is not the port of metrics"
        if endpoint.get("path", "/metrics").encode() not in OWN_PATHS:
            yield f"the node answers nothing at {endpoint['path']}"


def _unknown_metrics(each: Mapping[str, Any]) -> Iterator[str]:
    texts = [json.dumps(each["spec"])] if each["kind"] == "PrometheusRule" else list(each["data"].values())
    exprs = [expr for text in texts for expr in re.findall(r'"expr": ("(?:[^"\\]|\\.)*")', text)]
    for name in sorted({name for expr in exprs for name in re.findall(r"\btidelog_\w+", json.loads(expr))}):
        plain = re.sub(r"_(bucket|sum|count)$", "", name)
        if name not in _METRICS and _METRICS.get(plain) != "histogram":
            yield f"no node has a metric {name}"
