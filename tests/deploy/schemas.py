"""Objects against the schemas of Kubernetes' API, those of kubernetes-validate: unknown fields are refused.

It has no schemas of the kinds that others define (cert-manager, Prometheus' operator): for these, schemas of the fields
that our manifests use are beside this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.deploy.kustomizations import Objects, name_of

VERSIONS: Final = ("1.30", "1.34", "1.37")
"""The oldest that docs/deploy.md names, and the newest; one between them."""

_OTHERS: Final = json.loads(Path(__file__).with_name("other_schemas.json").read_text(encoding="utf-8"))


def findings(objects: Objects, version: str) -> Iterator[str]:
    """What the API of that version would refuse."""
    for each in objects:
        validator = _validator(version, each["apiVersion"], each["kind"])
        if validator is None:
            yield f"{name_of(each)}: Kubernetes {version} has no {each['kind']} of {each['apiVersion']}"
            continue
        for error in sorted(validator.iter_errors(each), key=lambda error: error.json_path):
            yield f"{name_of(each)}: {error.json_path}: {error.message} (Kubernetes {version})"


@cache
def _validator(version: str, api_version: str, kind: str) -> Draft202012Validator | None:
    """None: there is no such kind."""
    if (other := _OTHERS.get(f"{api_version} {kind}")) is not None:
        return Draft202012Validator(other)
    group, _, last = api_version.rpartition("/")
    name = "-".join(part for part in (kind.lower(), group.partition(".")[0], last) if part)
    file = _directory(version) / f"{name}.json"
    if not file.is_file():
        return None
    return Draft202012Validator(json.loads(file.read_text(encoding="utf-8")), registry=_definitions(version))


def _directory(version: str) -> Path:
    found = Path(str(files("kubernetes_validate"))) / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    assert found.is_dir(), f"kubernetes-validate has no schemas of Kubernetes {version}; choose one of {found.parent}"
    return found


@cache
def _definitions(version: str) -> Registry[Any]:
    contents = json.loads((_directory(version) / "_definitions.json").read_text(encoding="utf-8"))
    return Resource.from_contents(contents) @ Registry[Any]()
