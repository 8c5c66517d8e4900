"""Writes the table of RPCs from the descriptors of the proto files; `make proto` calls it.

python -m tests.rpc_table > FILE
"""

from __future__ import annotations

import re
import sys
from importlib import import_module

FILES = ("data", "admin", "controller", "quorum", "sasl", "groups", "transactions", "remote_logs")
VALUES = {"ProduceRequest": "ProduceRequest", "FetchResponse": "FetchAnswer"}
"""Messages with records, and their classes in tidelog/record_exchange.py."""


def constant(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


def table() -> str:
    lines = [
        '"""Generated from proto/tidelog/protocol/v1 by `make proto`; never edited."""',
        "",
        "from typing import Final",
        "",
        "from tidelog import record_exchange",
        "from tidelog.protocol.rpc import CallKind, Method",
        "from tidelog.protocol.v1 import " + ", ".join(f"{file}_pb2" for file in ("acl", *FILES)),
        "",
    ]
    for file in FILES:
        for service in import_module(f"tidelog.protocol.v1.{file}_pb2").DESCRIPTOR.services_by_name.values():
            lines.append(f'{constant(service.name)}: Final = "{service.full_name}"')
            for rpc in service.methods:
                classes = ", ".join(
                    f"record_exchange.{VALUES[each.name]}"
                    if each.name in VALUES
                    else f"{each.file.name.rpartition('/')[2].removesuffix('.proto')}_pb2.{each.name}"
                    for each in (rpc.input_type, rpc.output_type)
                )
                kind = "STREAM" if rpc.client_streaming else "UNARY"
                lines.append(
                    f"{constant(service.name)}_{constant(rpc.name)}: Final = Method(\n"
                    f'    {constant(service.name)}, "{rpc.name}", {classes}, CallKind.{kind}\n)'
                )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
