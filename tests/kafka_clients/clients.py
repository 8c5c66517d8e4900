"""The clients of the matrix: how each is fetched, through its ordinary package client, and what runs its driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
BUILD: Final = ROOT / "build/kafka-clients"
FETCH_S: Final = 900


PYTHON_CODECS: Final = ("cramjam==2.14.0", "lz4==4.4.5", "python-snappy==0.7.3", "zstandard==0.25.0")
"""Packages for the codecs of the clients in pure Python."""
KAFKAJS_CODECS: Final = ("kafkajs-snappy@1.1.0", "lz4-napi@2.10.0", "@mongodb-js/zstd@1.2.2")


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


def _run(command: Sequence[str], cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> None:
    """environment: what is added to it. Raises NotToBeHad with the last line that the command printed."""
    if shutil.which(command[0]) is None:
        raise NotToBeHad(f"there is no command {Path(command[0]).name}")
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            check=False,
        )
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


def java(version: str) -> Client:
    """Kafka's own clients; Java compiles the driver against them."""

    def fetch() -> Sequence[str]:
        home = BUILD / f"java-{version}"
        if not (home / ".ready").exists():
            pom, where = str(HERE / "java-pom.xml"), f"-DoutputDirectory={home}"
            version_of = f"-Dkafka.clients.version={version}"
            _run(["mvn", "-B", "-q", "-ntp", "-f", pom, version_of, "dependency:copy-dependencies", where])
            (home / ".ready").touch()
        if shutil.which("javac") is None:
            raise NotToBeHad("there is no Java compiler (Debian: openjdk-17-jdk-headless)")
        return ["java", "-cp", f"{home}/*", str(HERE / "Driver.java")]

    return Client("Java", version, fetch)


def go(name: str, version: str, package: str) -> Client:
    """A module of Go, at the version of go/go.mod. package: the directory of its driver."""

    def fetch() -> Sequence[str]:
        driver = BUILD / package
        _run(["go", "build", "-o", str(driver), f"./{package}"], cwd=HERE / "go")
        return [str(driver)]

    return Client(name, version, fetch)


def rust(name: str, version: str) -> Client:
    """A crate, at the version of rust/Cargo.toml. It compiles librdkafka: that takes minutes."""

    def fetch() -> Sequence[str]:
        target = BUILD / "rust"
        _run(["cargo", "build", "--quiet", "--locked", "--target-dir", str(target)], cwd=HERE / "rust")
        return [str(target / "debug/kafka-matrix")]

    return Client(name, version, fetch)


def javascript(name: str, version: str, driver: str, *more: str) -> Client:
    """A package of npm. more: packages for its codecs."""

    def fetch() -> Sequence[str]:
        home = BUILD / f"{name.rpartition('/')[2]}-{version}"
        if not (home / ".ready").exists():
            home.mkdir(parents=True, exist_ok=True)
            options = ["--no-fund", "--no-audit", "--loglevel=error", f"--prefix={home}"]
            _run(["npm", "install", *options, f"{name}@{version}", *more])
            (home / ".ready").touch()
        return ["node", str(HERE / "javascript" / driver), str(home)]

    return Client(name, version, fetch)


def confluent_javascript(version: str) -> Client:
    """The package compiles, in minutes, the librdkafka that it contains: what it installs by itself is not in npm.

    With zstd if its headers are there (Debian: libzstd-dev).
    """
    name = "@confluentinc/kafka-javascript"

    def fetch() -> Sequence[str]:
        home = BUILD / f"confluent-javascript-{version}"
        if not (home / ".ready").exists():
            home.mkdir(parents=True, exist_ok=True)
            npm = ["npm", "--no-fund", "--no-audit", "--loglevel=error", f"--prefix={home}"]
            _run([*npm, "install", "--ignore-scripts", f"{name}@{version}"])
            library = home / "node_modules" / name / "deps/librdkafka"
            _run([str(library / "configure"), "--disable-gssapi", "--disable-curl"], cwd=library)
            _run(["make", "libs"], cwd=library)
            places = [library / "src", library / "src-cpp"]
            node = Path(shutil.which("node") or "node").resolve()
            settings = {
                "BUILD_LIBRDKAFKA": "0",
                "CXXFLAGS": " ".join(f"-I{each}" for each in places),
                "LDFLAGS": " ".join(f"-L{each} -Wl,-rpath,{each}" for each in places),
                "npm_config_build_from_source": "true",
                "npm_config_nodedir": str(node.parent.parent),  # its headers, which would be downloaded
            }
            _run([*npm, "rebuild", name], environment=settings)
            (home / ".ready").touch()
        return ["node", str(HERE / "javascript/confluent_driver.js"), str(home)]

    return Client(name, version, fetch)


def kcat() -> Client:
    """The one of the operating system."""
    version = "1.7"

    def fetch() -> Sequence[str]:
        if shutil.which("kcat") is None:
            raise NotToBeHad("there is no command kcat (Debian: apt install kcat)")
        return [sys.executable, "-m", "tests.kafka_clients.kcat_driver"]

    return Client("kcat", version, fetch)


CLIENTS: Final = (
    java("3.9.1"),
    java("4.1.0"),
    java("4.4.0"),
    python("confluent-kafka", "2.0.2", "librdkafka_driver"),
    python("confluent-kafka", "2.16.1", "librdkafka_driver"),
    kcat(),
    python("aiokafka", "0.14.0", "aiokafka_driver", *PYTHON_CODECS),
    python("kafka-python", "3.0.12", "kafka_python_driver", *PYTHON_CODECS),
    go("franz-go", "1.22.3", "franz"),
    go("sarama", "1.61.1", "sarama"),
    rust("rdkafka", "0.39.0"),
    javascript("kafkajs", "2.2.4", "kafkajs_driver.js", *KAFKAJS_CODECS),
    javascript("@platformatic/kafka", "2.12.1", "platformatic_driver.js"),
    confluent_javascript("1.10.1"),
)
"""The oldest confluent-kafka is the oldest with a wheel for Python 3.11."""
