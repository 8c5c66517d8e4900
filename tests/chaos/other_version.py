"""Another version of Tidelog beside that of this checkout: a wheel in a virtual environment of its own, or an image."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.wheels import ROOT, build_wheel, completed, install_alone, run

IMAGE: Final = "tidelog:other-version"
NO_RELEASE: Final = "there is no tag v* yet that names the version before this one, and no --other-version"
_IN_PLACE_OF_THIS_PYTHON: Final = 'shift; exec "$0" "$@"'
"""$0 is the other Python; the first argument is the Python of this checkout."""


@dataclass(frozen=True, slots=True)
class OtherVersion:
    name: str
    """As it was given: a git reference, a wheel, or an image."""
    wrapper: tuple[str, ...] = ()
    """Of the command of a process: it runs with that version."""
    image: str = ""
    """Of a container."""


def newest_release(root: Path = ROOT) -> str | None:
    """The newest tag of a release, if there is one; None as well where there is no repository."""
    tags = completed("git", "tag", "--list", "v*", "--sort=-version:refname", cwd=root).stdout.split()
    return tags[0] if tags else None


def for_processes(given: str, directory: Path) -> OtherVersion:
    """given: the file of a wheel, or a git reference, of which one is built."""
    wheel = Path(given).resolve()
    if not wheel.is_file():
        wheel = build_wheel(directory, _sources(given, directory))
    python = install_alone(wheel, directory / "venv")
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=directory).strip())
    # Dependencies are those of this checkout, whose directories of packages do not contain Tidelog itself.
    path = f"{packages / 'tidelog' / '_server'}:{packages}:{sysconfig.get_path('purelib')}"
    return OtherVersion(given, ("env", f"PYTHONPATH={path}", "sh", "-c", _IN_PLACE_OF_THIS_PYTHON, str(python)))


def for_containers(given: str, directory: Path) -> OtherVersion:
    """given: an image, or a git reference, of which one is built as that version does."""
    if subprocess.run(["docker", "image", "inspect", given], capture_output=True, check=False).returncode == 0:
        return OtherVersion(given, image=given)
    sources = _sources(given, directory)
    (sources / ".venv").symlink_to(Path(sys.prefix))
    run(sources / "deploy" / "docker" / "build-image", IMAGE, cwd=sources)
    return OtherVersion(given, image=IMAGE)


def _sources(reference: str, directory: Path) -> Path:
    sources = directory / "other-version"
    sources.mkdir()
    archive = directory / "other-version.tar"
    run("git", "archive", "--output", archive, reference, cwd=ROOT)
    run("tar", "-xf", archive, "-C", sources, cwd=ROOT)
    return sources
