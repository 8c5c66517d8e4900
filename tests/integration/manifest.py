"""The rendered Kubernetes manifest as facts: what one pod of the StatefulSet is given. Tests start it by these."""

from __future__ import annotations

import re
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "deploy" / "k8s"


@cache
def render() -> tuple[dict[str, Any], ...]:
    """Every object that `kubectl apply -k` would send."""
    done = subprocess.run(["kubectl", "kustomize", str(BASE)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def the(kind: str, name: str = "tidelog") -> dict[str, Any]:
    """The one object of that kind and name; a generated name may end in a hash."""
    pattern = re.compile(rf"{re.escape(name)}(-[a-z0-9]{{10}})?")
    (found,) = (o for o in render() if o["kind"] == kind and pattern.fullmatch(o["metadata"]["name"]))
    return found


def container() -> dict[str, Any]:
    """The only container of a pod."""
    (only,) = the("StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def config_text() -> str:
    text = the("ConfigMap", "tidelog-config")["data"]["tidelog.toml"]
    assert isinstance(text, str)
    return text


@dataclass(frozen=True)
class Pod:
    """What Kubernetes makes of the template for one ordinal, as far as a plain container can have it."""

    ordinal: int

    @property
    def name(self) -> str:
        return f"{the('StatefulSet')['metadata']['name']}-{self.ordinal}"

    @property
    def host_name(self) -> str:
        """Its name behind the headless service, as its peers call it."""
        return f"{self.name}.{the('StatefulSet')['spec']['serviceName']}"

    @property
    def image(self) -> str:
        return str(container()["image"])

    @property
    def arguments(self) -> list[str]:
        return list(container()["args"])

    @property
    def environment(self) -> dict[str, str]:
        """Fields of the pod and `$(NAME)` resolved, in order, as the kubelet does."""
        fields = {"metadata.name": self.name, "metadata.namespace": "default"}
        made: dict[str, str] = {}
        for entry in container()["env"]:
            value = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in entry else entry["value"]
            made[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda match: made.get(match[1], match[0]), value)
        return made

    @property
    def user(self) -> str:
        security = the("StatefulSet")["spec"]["template"]["spec"]["securityContext"]
        return f"{security['runAsUser']}:{security['runAsGroup']}"

    def mount(self, volume: str) -> str:
        """Where the volume of that name appears in the container."""
        (path,) = (entry["mountPath"] for entry in container()["volumeMounts"] if entry["name"] == volume)
        return str(path)


def pods() -> list[Pod]:
    return [Pod(ordinal) for ordinal in range(the("StatefulSet")["spec"]["replicas"])]


def config() -> dict[str, Any]:
    return tomllib.loads(config_text())
