"""The clients of the matrix: how each is fetched, through its ordinary package client, and what runs its driver."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
BUILD: Final = ROOT / "build/kafka-clients"
FETCH_S: Final = 900


class NotToBeHad(Exception):
    """The client cannot be fetched or built on this machine."""


@dataclass(frozen=True, slots=True)
class Client:
    """One client. fetch: makes it usable and returns the command of its driver; raises NotToBeHad."""

    name: str
    version: str
    fetch: Callable[[], Sequence[str]]

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"


def _run(command: Sequence[str], cwd: Path = ROOT) -> None:
    """Raises NotToBeHad with the last line that the command printed."""
    if shutil.which(command[0]) is None:
        raise NotToBeHad(f"there is no command {Path(command[0]).name}")
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotToBeHad(f"{Path(command[0]).name} took more than {FETCH_S} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise NotToBeHad(f"{Path(command[0]).name} failed: {last}")


def python(package: str, version: str, driver: str, *more: str) -> Client:
    """A package of Python in an environment of its own. more: packages for its codecs."""

    def fetch() -> Sequence[str]:
        home = BUILD / f"{package}-{version}"
        own = str(home / "bin/python")
        if not (home / ".ready").exists():
            _run([sys.executable, "-m", "venv", "--clear", str(home)])
            wanted = [f"{package}=={version}", *more]
            _run(
                [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", *wanted]
            )
            (home / ".ready").touch()
        return [own, "-m", f"tests.kafka_clients.{driver}"]

    return Client(package, version, fetch)


CLIENTS: Final = (
    python("confluent-kafka", "2.0.2", "librdkafka_driver"),
    python("confluent-kafka", "2.16.1", "librdkafka_driver"),
)
"""The oldest confluent-kafka is the oldest with a wheel for Python 3.11."""
