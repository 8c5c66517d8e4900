"""kcat, as scripts use it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from tests.kafka_clients.reporting import CODECS, WAIT_S, Unsupported, run, settings
from tidelog.clock import MachineClock

HERE = settings()


def kcat(*arguments: str, given: str = "") -> str:
    """What it prints."""
    done = subprocess.run(
        ["kcat", *(() if "-b" in arguments else ("-b", HERE.bootstrap)), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def options(**config: str) -> list[str]:
    return [word for name, value in config.items() for word in ("-X", f"{name.replace('_', '.')}={value}")]


def write(topic: str, values: Sequence[str], *more: str) -> None:
    kcat("-P", "-t", topic, "-p", "0", *more, given="\n".join(values))


def read(topic: str, count: int, *more: str) -> list[str]:
    return kcat("-C", "-q", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), *more).splitlines()


def codecs() -> None:
    topic = HERE.topic("codecs")
    for codec in CODECS:
        write(topic, [codec * 100], *(() if codec == "none" else ("-z", codec)))
    assert read(topic, 5) == [codec * 100 for codec in CODECS]


def acks() -> None:
    for each in ("0", "1", "all"):
        write(HERE.topic("acks"), [each], *options(acks=each))
    assert sorted(read(HERE.topic("acks"), 3)) == ["0", "1", "all"]


def idempotence() -> None:
    wanted = [str(number) for number in range(100)]
    write(HERE.topic("idempotence"), wanted, *options(enable_idempotence="true"))
    assert read(HERE.topic("idempotence"), 100) == wanted


def transactions() -> None:
    """All of one input is a transaction."""
    topic = HERE.topic("transactions")
    write(topic, ["committed"], *options(transactional_id=topic))
    assert read(topic, 1, *options(isolation_level="read_committed")) == ["committed"]


def offsets() -> None:
    raise Unsupported("kcat writes or reads, never both")


def classic() -> None:
    """A second member goes on where the first one has committed."""
    topic = HERE.topic("classic")
    write(topic, ["a", "b"])
    for value in ("a", "b"):
        assert kcat("-q", "-c", "1", *options(auto_offset_reset="earliest"), "-G", topic, topic) == f"{value}\n"


def consumer_group() -> None:
    raise Unsupported("the librdkafka of this kcat does not have KIP-848")


def headers() -> None:
    write(HERE.topic("headers"), ["v"], "-H", "a=1", "-H", "a=", "-H", "b")
    assert read(HERE.topic("headers"), 1, "-f", "%h\n") == ["a=1,a=,b=NULL"]


def timestamps() -> None:
    """Those of kcat are the time of writing; offsets are found by them."""
    topic, before = HERE.topic("timestamps"), MachineClock().wall_ms()
    write(topic, ["v"])
    (stamp,) = read(topic, 1, "-f", "%T\n")
    assert before <= int(stamp) <= MachineClock().wall_ms()
    assert kcat("-Q", "-t", f"{topic}:0:{stamp}").strip() == f"{topic} [0] offset 0"


def admin() -> None:
    topic = HERE.topic("admin")
    assert f'topic "{topic}" with 1 partitions' in kcat("-L", "-t", topic)
    raise Unsupported("kcat lists topics and changes none")


def secured(feature: str, bootstrap: str, **config: str) -> Callable[[], None]:
    def story() -> None:
        topic, given = HERE.topic(feature), ("-b", bootstrap, *options(ssl_ca_location=HERE.ca, **config))
        write(topic, ["secret"], *given)
        assert read(topic, 1, *given) == ["secret"]

    return story


def login_by(mechanism: str, feature: str) -> Callable[[], None]:
    return secured(
        feature,
        HERE.secure_bootstrap,
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_username=HERE.username,
        sasl_password=HERE.password,
    )


def token() -> None:
    raise Unsupported("kcat takes no token, and its librdkafka is built without OIDC")


run(
    {
        "codecs": codecs,
        "acks": acks,
        "idempotence": idempotence,
        "transactions": transactions,
        "offsets": offsets,
        "classic": classic,
        "consumer": consumer_group,
        "headers": headers,
        "timestamps": timestamps,
        "admin": admin,
        "scram": login_by("SCRAM-SHA-512", "scram"),
        "plain": login_by("PLAIN", "plain"),
        "oauthbearer": token,
        "certificate": secured(
            "certificate",
            HERE.mutual_bootstrap,
            security_protocol="SSL",
            ssl_certificate_location=HERE.certificate,
            ssl_key_location=HERE.key,
        ),
    }
)
