"""The rendered Kubernetes manifest as facts: what one pod of the StatefulSet is given. Tests start it by these."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "deploy" / "k8s"
PROD = ROOT / "deploy" / "overlays" / "prod"
DEV = ROOT / "deploy" / "overlays" / "dev"
CERT_MANAGER = ROOT / "deploy" / "components" / "cert-manager"
EXTERNAL = ROOT / "deploy" / "components" / "external"
APPLY = ROOT / "deploy" / "components" / "apply"
ARCHIVE = ROOT / "deploy" / "components" / "archive"
SECOND_VOLUME = ROOT / "deploy" / "components" / "second-volume"
REMOTE_TIER = ROOT / "deploy" / "components" / "remote-tier"
MONITORING = ROOT / "deploy" / "monitoring"
STORE_URL = "s3://your-bucket/production"


@cache
def render(overlay: Path = BASE, *components: Path) -> tuple[dict[str, Any], ...]:
    """Every object that `kubectl apply -k` would send, for the overlay with these components."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name).resolve()
        if components:
            paths = {"resources": [overlay], "components": components}
            kustomization: dict[str, Any] = {
                key: [os.path.relpath(each, home) for each in given] for key, given in paths.items()
            }
            # As in docs/deploy.md: the namespace of the overlay does not reach what components add.
            kustomization["namespace"] = "tidelog"
            kustomization["configMapGenerator"] = []
            if APPLY in components:
                # As in docs/apply.md: the files of the Job come from the overlay.
                shutil.copy(APPLY / "state.toml", home)
                kustomization["configMapGenerator"] += [{"name": "tidelog-apply", "files": ["state.toml"]}]
            if REMOTE_TIER in components:
                # As in docs/deploy.md: the store comes from the overlay.
                store = [f"TIDELOG_REMOTE_LOG_STORAGE_URL={STORE_URL}", "AWS_REGION=eu-central-1"]
                kustomization["configMapGenerator"] += [{"name": "tidelog-remote-tier", "literals": store}]
            (home / "kustomization.yaml").write_text(json.dumps(kustomization))
        done = subprocess.run(
            ["kubectl", "kustomize", str(home if components else overlay)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def the(kind: str, name: str = "tidelog", overlay: Path = BASE) -> dict[str, Any]:
    """The one object of that kind and name; a generated name may end in a hash."""
    pattern = re.compile(rf"{re.escape(name)}(-[a-z0-9]{{10}})?")
    (found,) = (o for o in render(overlay) if o["kind"] == kind and pattern.fullmatch(o["metadata"]["name"]))
    return found


def container(overlay: Path = BASE) -> dict[str, Any]:
    """The only container of a pod."""
    (only,) = the("StatefulSet", overlay=overlay)["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def config_text(overlay: Path = BASE) -> str:
    text = the("ConfigMap", "tidelog-config", overlay)["data"]["tidelog.toml"]
    assert isinstance(text, str)
    return text


@dataclass(frozen=True)
class Pod:
    """What Kubernetes makes of the template for one ordinal, as far as a plain container can have it."""

    ordinal: int
    overlay: Path = BASE

    @property
    def _stateful(self) -> dict[str, Any]:
        return the("StatefulSet", overlay=self.overlay)

    @property
    def name(self) -> str:
        return f"{self._stateful['metadata']['name']}-{self.ordinal}"

    @property
    def namespace(self) -> str:
        return str(self._stateful["metadata"].get("namespace", "default"))

    @property
    def host_names(self) -> list[str]:
        """Its names behind the headless service: inside its namespace, and anywhere."""
        inside = f"{self.name}.{self._stateful['spec']['serviceName']}"
        return [inside, f"{inside}.{self.namespace}.svc"]

    @property
    def image(self) -> str:
        return str(container(self.overlay)["image"])

    @property
    def arguments(self) -> list[str]:
        return list(container(self.overlay)["args"])

    @property
    def environment(self) -> dict[str, str]:
        return environment(self._stateful, self.ordinal)

    @property
    def user(self) -> str:
        security = self._stateful["spec"]["template"]["spec"]["securityContext"]
        return f"{security['runAsUser']}:{security['runAsGroup']}"

    @property
    def pre_stop_s(self) -> int:
        """How long the kubelet waits before it sends SIGTERM."""
        return int(container(self.overlay)["lifecycle"]["preStop"]["sleep"]["seconds"])

    @property
    def grace_s(self) -> int:
        """After it, which includes that wait, the kubelet kills."""
        return int(self._stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])

    @property
    def memory(self) -> str:
        """The limit of its memory, as Docker writes it."""
        limit = str(container(self.overlay)["resources"]["limits"]["memory"])
        return limit.removesuffix("i").lower()

    @property
    def health_port(self) -> int:
        """Where the kubelet asks whether it lives."""
        return int(container(self.overlay)["livenessProbe"]["grpc"]["port"])

    def mount(self, volume: str) -> str:
        """Where the volume of that name appears in the container."""
        (path,) = (entry["mountPath"] for entry in container(self.overlay)["volumeMounts"] if entry["name"] == volume)
        return str(path)


def pods(overlay: Path = BASE) -> list[Pod]:
    return [Pod(ordinal, overlay) for ordinal in range(the("StatefulSet", overlay=overlay)["spec"]["replicas"])]


def environment(stateful: Mapping[str, Any], ordinal: int, zone: str = "") -> dict[str, str]:
    """The variables of that pod's only container: fields and `$(NAME)` resolved, in order, as the kubelet does.

    zone: of its machine, which Kubernetes 1.35 and newer copy to the pod; empty: it has no such label.
    """
    name = f"{stateful['metadata']['name']}-{ordinal}"
    fields = {
        "metadata.name": name,
        "metadata.namespace": stateful["metadata"].get("namespace", "default"),
        "metadata.labels['topology.kubernetes.io/zone']": zone,
    }
    (only,) = stateful["spec"]["template"]["spec"]["containers"]
    made: dict[str, str] = {}
    for entry in only["env"]:
        value = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in entry else entry["value"]
        made[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda match: made.get(match[1], match[0]), value)
    return made


def config(overlay: Path = BASE) -> dict[str, Any]:
    return tomllib.loads(config_text(overlay))
