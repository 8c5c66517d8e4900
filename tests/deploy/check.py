"""`make k8s-check`: every kustomization of deploy/, rendered, is accepted by the schemas of three versions of
Kubernetes and by the Pod Security Standard "restricted", and names what this repository has."""

from __future__ import annotations

import sys

from tests.deploy import pod_security, references, schemas
from tests.deploy.kustomizations import Objects, rendered


def findings(objects: Objects) -> list[str]:
    """What is wrong with the objects of one kustomization."""
    refused = [problem for version in schemas.VERSIONS for problem in schemas.findings(objects, version)]
    # The other rules read fields without a check of their own: objects that the API refuses may lack them.
    return refused or [*pod_security.findings(objects), *references.findings(objects)]


def main() -> int:
    wrong = 0
    for name, objects in rendered().items():
        found = findings(objects)
        wrong += len(found)
        print(f"{name}: {len(objects)} objects, {len(found) or 'nothing'} wrong")
        for problem in found:
            print(f"  {problem}", file=sys.stderr)
    print(f"Kubernetes {', '.join(schemas.VERSIONS)}; Pod Security Standard restricted; names of this repository")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
