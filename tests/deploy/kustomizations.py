"""Every kustomization in deploy/, rendered as `kubectl apply -k` would send it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tests.integration import manifest

Objects: TypeAlias = tuple[dict[str, Any], ...]

DEPLOY = manifest.ROOT / "deploy"


def directories(kind: str) -> list[Path]:
    """The directories with a kustomization of that kind: `Kustomization` or `Component`."""
    files = sorted(DEPLOY.rglob("kustomization.yaml"))
    return [file.parent for file in files if yaml.safe_load(file.read_text(encoding="utf-8"))["kind"] == kind]


def rendered() -> Mapping[str, Objects]:
    """The objects of each base and overlay, and of the overlay for production with each component and with all: a
    component alone is not applied by anybody."""
    components = directories("Component")
    found = {str(path.relative_to(DEPLOY)): manifest.render(path) for path in directories("Kustomization")}
    for component in components:
        found[f"overlays/prod + {component.relative_to(DEPLOY)}"] = manifest.render(manifest.PROD, component)
    found["overlays/prod + all components"] = manifest.render(manifest.PROD, *components)
    return found


def name_of(each: Mapping[str, Any]) -> str:
    """What a finding calls an object."""
    return f"{each['kind']} {each['metadata']['name']}"
