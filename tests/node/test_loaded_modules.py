"""What a node loads only when it is needed: an idle node keeps no memory for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LATER = (
    "cryptography",  # TLS
    "node.listeners.kafka",  # without a listener of Kafka's protocol
    "jwt",  # OAUTHBEARER
    "re2",  # members of groups that subscribe to a pattern
    "email",  # with http.client and html: what fetches keys of OAUTHBEARER, and Prometheus' library in tests
    "html",
    "http.client",
    "prometheus_client",
    "tidelog.client",  # the web console
    "tidelog.console.pages",
)

LOOK = """
import json, sys
import node.process.process
print(json.dumps(sorted(sys.modules)))
"""


def test_a_node_does_not_load_what_it_may_never_need() -> None:
    found = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = {name for name in json.loads(found.stdout) for later in LATER if f"{name}.".startswith(f"{later}.")}
    assert loaded == set()
