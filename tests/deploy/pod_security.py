"""Pods against the Pod Security Standard "restricted", which includes "baseline", as of Kubernetes 1.37.

Rules for Windows are left out: our image is one of Linux.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.deploy.kustomizations import Objects, name_of

_POD_TEMPLATES: Final = ("StatefulSet", "Deployment", "DaemonSet", "ReplicaSet", "Job")
_VOLUMES: Final = frozenset(
    ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
)
_SYSCTLS: Final = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    )
)
_SELINUX_TYPES: Final = (None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")


def findings(objects: Objects) -> Iterator[str]:
    """What a namespace that enforces `restricted` would refuse."""
    for each in objects:
        spec = pod_spec(each)
        if spec is not None:
            yield from (f"{name_of(each)}: {problem} (Pod Security Standard restricted)" for problem in _pod(spec))


def pod_spec(each: Mapping[str, Any]) -> dict[str, Any] | None:
    """The pods that an object makes; None if it makes none."""
    spec: dict[str, Any] = each.get("spec", {})
    if each["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    elif each["kind"] == "Pod":
        return spec
    elif each["kind"] not in _POD_TEMPLATES:
        return None
    found: dict[str, Any] = spec["template"]["spec"]
    return found


def _pod(spec: Mapping[str, Any]) -> Iterator[str]:
    security = spec.get("securityContext", {})
    yield from (f"{field} is set" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field))
    yield from _identity("the pod", security)
    for each in security.get("sysctls", ()):
        if each["name"] not in _SYSCTLS:
            yield f"sysctl {each['name']} is not a safe one"
    for volume in spec.get("volumes", ()):
        for kind in volume.keys() - {"name"} - _VOLUMES:
            yield f"volume {volume['name']} is of the type {kind}"
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        yield from (f"container {container['name']}: {problem}" for problem in _container(container, security))


def _container(container: Mapping[str, Any], of_pod: Mapping[str, Any]) -> Iterator[str]:
    own = container.get("securityContext", {})
    yield from _identity("it", own)
    if own.get("privileged"):
        yield "privileged is set"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()):
        yield "capabilities.drop does not contain ALL"
    if added := set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield f"capabilities.add has {', '.join(sorted(added))}"
    if own.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot is not true"
    if "seccompProfile" not in own and "seccompProfile" not in of_pod:
        yield "seccompProfile is not set"
    if own.get("procMount", "Default") != "Default":
        yield f"procMount is {own['procMount']}"
    for port in container.get("ports", ()):
        if port.get("hostPort"):
            yield f"port {port['containerPort']} is one of the machine (hostPort)"
    handlers = [container.get(name, {}) for name in _PROBES] + list(container.get("lifecycle", {}).values())
    if any("host" in handler.get(way, {}) for handler in handlers for way in ("httpGet", "tcpSocket")):
        yield "a probe or a lifecycle handler names a host"


def _identity(whose: str, security: Mapping[str, Any]) -> Iterator[str]:
    """What holds for the settings of a pod as well as for those of a container."""
    if security.get("runAsUser") == 0:
        yield f"{whose} runs as user 0"
    if (kind := security.get("seccompProfile", {}).get("type", "RuntimeDefault")) not in (
        "RuntimeDefault",
        "Localhost",
    ):
        yield f"the seccomp profile of {whose} is {kind}"
    if (kind := security.get("appArmorProfile", {}).get("type", "RuntimeDefault")) not in (
        "RuntimeDefault",
        "Localhost",
    ):
        yield f"the AppArmor profile of {whose} is {kind}"
    selinux = security.get("seLinuxOptions", {})
    if selinux.get("type") not in _SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield f"the SELinux options of {whose} are not allowed"
