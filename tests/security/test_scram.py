"""SCRAM between two cores: the vectors of the RFCs, all outcomes, and hostile messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest, SaslAuthenticationFailed, TidelogError, UnacceptableCredential
from tidelog.security import scram
from tidelog.security.saslprep import saslprep
from tidelog.security.scram import (
    Claim,
    PasswordKeys,
    ScramClient,
    ScramCredential,
    ScramServer,
    credential_of,
    decoy,
    derive_keys,
)
from tidelog.types import ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = bytes(range(16))
ALICE = {each: credential_of(each, "tulip", SALT, 4_096) for each in ScramMechanism}


class Caller(ScramClient):
    """A client that has a password."""

    def __init__(self, mechanism: ScramMechanism, name: str, password: str, nonce: str) -> None:
        super().__init__(mechanism, name, nonce)
        self.keys_of: Callable[[bytes, int], PasswordKeys] = partial(derive_keys, mechanism, password)

    def answer(self, server_first: bytes) -> bytes:
        return self.final(server_first, self.keys_of(*self.asked(server_first)))


def client(
    mechanism: ScramMechanism = SHA_256, name: str = "alice", password: str = "tulip", nonce: str = "client"
) -> Caller:
    return Caller(mechanism, name, password, nonce)


def claimed(mechanism: ScramMechanism, name: str) -> Claim:
    credential = ALICE[mechanism] if name == "alice" else decoy(mechanism, name, b"of the cluster", 4_096)
    return Claim(name, credential, exists=name == "alice")


def server(mechanism: ScramMechanism = SHA_256, nonce: str = "server") -> ScramServer:
    return ScramServer(mechanism, nonce, lambda name: claimed(mechanism, name))


def handshake(asking: Caller, answering: ScramServer) -> None:
    final = answering.final(asking.answer(answering.first(asking.first())))
    asking.verify(final)


@pytest.mark.parametrize(
    ("mechanism", "nonces", "salt", "proof", "signature"),
    [
        (  # RFC 7677, section 3
            SHA_256,
            ("rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"),
            "W22ZaJ0SNY7soEsUEjb6gQ==",
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ],
)
def test_the_messages_of_the_rfc(
    mechanism: ScramMechanism, nonces: tuple[str, str], salt: str, proof: str, signature: str
) -> None:
    mine, more = nonces
    credential = credential_of(mechanism, "pencil", base64.b64decode(salt), 4_096)
    answering = ScramServer(mechanism, more, lambda name: Claim(name, credential, exists=True))
    asking = client(mechanism, "user", "pencil", mine)
    assert asking.first() == f"n,,n=user,r={mine}".encode()
    server_first = answering.first(asking.first())
    assert server_first == f"r={mine}{more},s={salt},i=4096".encode()
    client_final = asking.answer(server_first)
    assert client_final == f"c=biws,r={mine}{more},p={proof}".encode()
    server_final = answering.final(client_final)
    assert server_final == f"v={signature}".encode()
    asking.verify(server_final)
    assert answering.claim.username == "user"


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@given(name=st.text(min_size=1, max_size=40), password=st.text(min_size=1, max_size=40), guess=st.text(max_size=40))
@settings(max_examples=40, deadline=None)
def test_exactly_the_right_password_is_accepted(
    mechanism: ScramMechanism, name: str, password: str, guess: str
) -> None:
    """For any name and password that SASLprep allows, in any form that it makes the same."""
    try:
        prepared = scram.checked_name(name)
        credential = credential_of(mechanism, password, SALT, 4_096)
        right = saslprep(password)
        same = saslprep(guess) == right
    except (UnacceptableCredential, ValueError):
        return
    answering = ScramServer(mechanism, "server", lambda found: Claim(found, credential, exists=True))
    handshake(client(mechanism, name, password), answering)
    assert answering.claim.username == prepared
    if same:
        handshake(client(mechanism, name, guess), answering)
    else:
        with pytest.raises(SaslAuthenticationFailed):
            handshake(client(mechanism, name, guess), answering)


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_an_unknown_user_cannot_be_told_from_a_wrong_password(mechanism: ScramMechanism) -> None:
    """The first answers have the same form and length, and the same for one name each time; the errors are equal."""
    failures, answers = [], []
    for name in ("alice", "nobody"):
        asking, answering = client(mechanism, name, "wrong"), server(mechanism)
        first = answering.first(asking.first())
        answers.append(re.sub(rb"s=[^,]+", b"s=", first))
        assert len(base64.b64decode(first.split(b"s=")[1].split(b",")[0])) == scram.SALT_BYTES
        with pytest.raises(SaslAuthenticationFailed) as failed:
            answering.final(asking.answer(first))
        failures.append((type(failed.value), failed.value.message))
        assert name not in failed.value.message
        assert server(mechanism).first(client(mechanism, name, "other").first()) == first
    assert failures[0] == failures[1]
    assert answers[0] == answers[1]


def test_a_decoy_is_refused_even_if_its_keys_were_known() -> None:
    """An attacker who learnt the secret of the cluster still gets in as no one."""
    credential = credential_of(SHA_256, "known", SALT, 4_096)
    answering = ScramServer(SHA_256, "server", lambda name: Claim(name, credential, exists=False))
    with pytest.raises(SaslAuthenticationFailed):
        handshake(client(SHA_256, "nobody", "known"), answering)


def test_decoys_differ_by_name_mechanism_and_cluster() -> None:
    made = [
        decoy(mechanism, name, secret, 4_096)
        for mechanism in ScramMechanism
        for name in ("a", "b")
        for secret in (b"one", b"two")
    ]
    assert len({each.salt for each in made}) == len(made)


def test_a_node_that_does_not_know_the_credential_is_refused() -> None:
    asking, answering = client(), server()
    answering.final(asking.answer(answering.first(asking.first())))
    for forged in (b"v=" + base64.b64encode(bytes(32)), b"v=", b"e=other-error", b"", b"v=\xff"):
        with pytest.raises(SaslAuthenticationFailed):
            asking.verify(forged)
    with pytest.raises(SaslAuthenticationFailed):
        client().verify(b"v=")  # before the proof was sent


@pytest.mark.parametrize(
    "server_first",
    [
        b"",
        b"r=other,s=AAECAw==,i=4096",
        b"r=client,s=AAECAw==,i=4096",  # the node added nothing of its own
        b"r=client1,s=AAECAw==,i=4095",
        b"r=client1,s=AAECAw==,i=600001",
        b"r=client1,s=AAECAw==,i=99999999999999",
        b"r=client1,s=,i=4096",
        b"r=client1,s=!!,i=4096",
        b"r=client1,i=4096",
        b"m=x,r=client1,s=AAECAw==,i=4096",
        b"r=client1,s=AAECAw==,i=4096" + b"," * 5_000,
        b"\xff\xfe",
        b"r=client\x00,s=AAECAw==,i=4096",
    ],
)
def test_a_client_refuses_what_a_node_must_not_send(server_first: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        client().answer(server_first)


@pytest.mark.parametrize(
    "client_first",
    [
        b"",
        b"n,,",
        b"n,,n=alice",
        b"n,,n=,r=x",
        b"p=tls-server-end-point,,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,m=ext,n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=alice,r=" + b"x" * 257,
        b"n,,n=alice,r=a b",
        b"n,,n=" + b"a" * 256 + b",r=x",
        b"n,,n=a\x00b,r=x",
        b"n,,n=a\x07b,r=x",
        b"\xff",
        b"n,,n=alice,r=x," + b"y" * 5_000,
    ],
)
def test_a_server_refuses_what_a_client_must_not_send(client_first: bytes) -> None:
    with pytest.raises(InvalidRequest):
        server().first(client_first)


def test_a_client_may_name_itself_as_authorization_id_and_add_extensions() -> None:
    assert server().first(b"n,a=alice,n=alice,r=x,tokenauth=false").startswith(b"r=xserver,")
    assert server().first(b"y,,n=alice,r=x").startswith(b"r=xserver,")


def test_a_final_message_of_another_handshake_is_refused() -> None:
    """Neither a replay, nor another nonce or header under a right proof."""
    asking, first = client(), server()
    final = asking.answer(first.first(asking.first()))
    again = server(nonce="another")
    again.first(asking.first())
    with pytest.raises(SaslAuthenticationFailed):
        again.final(final)
    with pytest.raises(SaslAuthenticationFailed):
        first.final(final.replace(b"c=biws", b"c=eSws"))


def final_with(nonce: str, server_first: bytes) -> bytes:
    """The final message of alice, proven, with any nonce."""
    asking = client()
    keys, without_proof = derive_keys(SHA_256, "tulip", *asking.asked(server_first)), f"c=biws,r={nonce}"
    auth_message = b",".join([asking.first().removeprefix(b"n,,"), server_first, without_proof.encode()])
    signature = hmac.digest(hashlib.sha256(keys.client_key).digest(), auth_message, "sha256")
    proof = bytes(one ^ other for one, other in zip(keys.client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def test_librdkafka_before_2_6_1_repeats_its_nonce_and_nobody_else_may_change_it() -> None:
    """Its proof is over the message that it sends."""
    for nonce in ("clientserver", "clientclientserver"):
        answering = server()
        assert answering.final(final_with(nonce, answering.first(client().first()))).startswith(b"v=")
    for nonce in ("server", "client", "otherclientserver", "clientclientclientserver", "clientclient", "clientserverr"):
        answering = server()
        first = answering.first(client().first())
        with pytest.raises(SaslAuthenticationFailed):
            answering.final(final_with(nonce, first))


@given(first=st.binary(max_size=200), final=st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_an_answer_or_a_typed_error(first: bytes, final: bytes) -> None:
    for prefix in (b"", b"n,,n=alice,r="):
        answering = server()
        try:
            answering.first(prefix + first)
            answering.final(final)
        except TidelogError:
            continue
        raise AssertionError("random bytes are no proof")
    asking = client()
    asking.first()
    for prefix in (b"", b"r=client"):
        with pytest.raises(TidelogError):
            asking.answer(prefix + first)


def test_nothing_secret_is_shown() -> None:
    credential = ALICE[SHA_512]
    assert repr(credential) == f"ScramCredential(mechanism={SHA_512!r}, iterations=4096)"
    keys = derive_keys(SHA_256, "tulip", SALT, 4_096)
    assert repr(keys) == "PasswordKeys()"
    with pytest.raises(UnacceptableCredential) as refused:
        credential_of(SHA_256, "tul\x07ip", SALT)
    assert "tul" not in refused.value.message


@pytest.mark.parametrize("iterations", [0, 1, 4_095, 600_001])
def test_iterations_are_bounded(iterations: int) -> None:
    with pytest.raises(UnacceptableCredential):
        credential_of(SHA_256, "tulip", SALT, iterations)


def test_passwords_and_names_that_no_one_can_use() -> None:
    for password in ("", "\u00ad", "\u200b\ufe0f"):  # SASLprep removes the latter: anyone would log in without one
        with pytest.raises(UnacceptableCredential):
            credential_of(SHA_256, password, SALT)
    for name in ("", "a\nb", "x" * 256, "\u0627a", "\udc80"):
        with pytest.raises(UnacceptableCredential):
            scram.checked_name(name)


def test_saslprep_as_in_the_rfc() -> None:
    """RFC 4013, section 3."""
    assert saslprep("I\u00adX") == "IX"
    assert saslprep("user") == "user"
    assert saslprep("USER") == "USER"
    assert saslprep("\u00aa") == "a"
    assert saslprep("\u2168") == "IX"
    for refused in ("\u0007", "\u0627\u0031"):
        with pytest.raises(ValueError, match="RFC"):
            saslprep(refused)


def test_a_credential_is_not_the_password() -> None:
    """What the server keeps is not enough to log in: the stored key is the hash of the client's key."""
    credential: ScramCredential = ALICE[SHA_256]
    stolen = client()
    stolen.keys_of = lambda _salt, _iterations: scram.PasswordKeys(credential.stored_key, credential.server_key)
    with pytest.raises(SaslAuthenticationFailed):
        handshake(stolen, server())
