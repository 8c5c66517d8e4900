"""What the drivers in Python have in common: their settings, and one line for each feature."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT_S: Final = 30.0


class Unsupported(Exception):
    """The client does not have the feature."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the nodes are, and what the driver may use there: `topic(feature)` exists, with one partition."""

    bootstrap: str
    secure_bootstrap: str
    """The node with SASL_SSL."""
    mutual_bootstrap: str
    """The node with SSL, which wants a certificate."""
    ca: str
    username: str
    password: str
    token: str
    """For OAUTHBEARER, of the same user."""
    certificate: str
    key: str
    prefix: str
    """Of all names that the driver uses."""

    def topic(self, feature: str) -> str:
        return f"{self.prefix}-{feature}"


def settings() -> Settings:
    """From the environment, as every driver gets them."""
    return Settings(**{each.name: os.environ[f"MATRIX_{each.name.upper()}"] for each in fields(Settings)})


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until it holds: what one node has done, another one learns a moment later, as with Kafka."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"{holds.__name__} does not hold within {WAIT_S:g} s"
        time.sleep(0.1)


def run(features: Mapping[str, Callable[[], None]]) -> None:
    """Run each feature, and print a line for it."""
    for name, story in features.items():
        result, note = "passed", ""
        try:
            story()
        except Unsupported as reason:
            result, note = "unsupported", str(reason)
        except Exception as error:  # noqa: BLE001 - whatever a client raises is the result
            result, note = "failed", f"{type(error).__name__}: {error}"
        print(json.dumps({"feature": name, "result": result, "note": note}), flush=True)
