"""`tidelog-probe [--ready | --caught-up] ADDRESS`: check whether a node is alive, ready, or in sync again. Exit code
0 or 1.

For environments without a gRPC health probe that fits: scripts, `docker exec`, Kubernetes where listeners have TLS.
"""

from __future__ import annotations

import argparse
import sys

import grpc
from grpc_health.v1 import health_pb2

from node.listeners.grpc.health import CAUGHT_UP, READY
from tidelog.errors import ConnectionFailed, TidelogError
from tidelog.protocol import status
from tidelog.protocol.grpc_transport import blocking_channel
from tidelog.security.tls_files import Tls


def ask(address: str, service: str, timeout_ms: int, tls: Tls | None = None) -> bool:
    """True if the node reports this service as healthy. tls: None for plain text. Raises ConnectionFailed,
    RequestTimedOut, InvalidConfig."""
    with blocking_channel(address, tls) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = check(health_pb2.HealthCheckRequest(service=service), timeout=timeout_ms / 1000)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return False
            failure = status.from_rpc_error(error, address=address, phase="Health.Check")
            if tls is None and isinstance(failure, ConnectionFailed):
                # A listener with TLS closes the connection of a caller in plain text without a word.
                raise ConnectionFailed(f"{failure.message} If it has TLS, name --tls-ca.") from None
            raise failure from None
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def wanted_service(*, ready: bool, caught_up: bool) -> tuple[str, str]:
    """The health service to ask for, and what it says of the node."""
    return (CAUGHT_UP, "caught up") if caught_up else (READY, "ready") if ready else ("", "alive")


def verdict(address: str, wanted: str, *, is_healthy: bool) -> str:
    """One sentence for people."""
    return f"the node at {address} {'is' if is_healthy else 'is not'} {wanted}"


def probe_parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(prog="tidelog-probe", description=__doc__.split(":", 1)[1].strip())
    parser.add_argument("address", metavar="ADDRESS", help="HOST:PORT of a listener of the node that speaks gRPC")
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument("--ready", action="store_true", help="check whether the node is ready, not only alive")
    wanted.add_argument(
        "--caught-up",
        action="store_true",
        help="check whether the node is ready, and its replicas have been in sync since it started",
    )
    parser.add_argument("--timeout-ms", type=int, default=2_000, help="timeout of the check (milliseconds)")
    parser.add_argument("--tls-ca", metavar="FILE", help="connect with TLS; PEM file of the trusted authorities")
    parser.add_argument("--tls-cert", metavar="FILE", help="PEM file of the own certificate")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM file of the key of --tls-cert")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = probe_parser().parse_args(arguments)
    service, wanted = wanted_service(ready=options.ready, caught_up=options.caught_up)
    try:
        files = options.tls_ca, options.tls_cert, options.tls_key
        tls = Tls(*files) if any(files) else None
        healthy = ask(options.address, service, options.timeout_ms, tls)
    except TidelogError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    (sys.stdout if healthy else sys.stderr).write(verdict(options.address, wanted, is_healthy=healthy) + "\n")
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
