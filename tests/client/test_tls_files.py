"""The files of a TLS connection while they are replaced: what is used belongs together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificates import Authority
from tidelog.errors import InvalidConfig
from tidelog.security.tls_files import READS_MAX, Pem, Tls, TlsFiles


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def tls(authority: Authority) -> Tls:
    return authority.client("alice")


def contents(tls: Tls) -> Pem:
    assert tls.ca and tls.certificate and tls.key
    return Pem(Path(tls.ca).read_bytes(), Path(tls.certificate).read_bytes(), Path(tls.key).read_bytes())


def while_reading(monkeypatch: pytest.MonkeyPatch, replace: Callable[[], object], times: int) -> None:
    """Replace the files that many times, each after one of them was read."""
    read, left = TlsFiles._read, [times]

    def interrupted(files: TlsFiles) -> Pem:
        found = read(files)
        if left[0]:
            left[0] -= 1
            replace()
        return found

    monkeypatch.setattr(TlsFiles, "_read", interrupted)


def test_files_replaced_while_they_are_read_are_read_again(
    authority: Authority, tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_reading(monkeypatch, lambda: authority.client("alice"), 2)
    files = TlsFiles(tls)
    assert files.pem == contents(tls)
    while_reading(monkeypatch, lambda: authority.client("alice"), 2)
    authority.client("alice")
    assert files.refresh()
    assert files.pem == contents(tls)
    assert not files.refresh()


def test_files_that_never_rest_are_refused(authority: Authority, tls: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
    while_reading(monkeypatch, lambda: authority.client("alice"), READS_MAX)
    with pytest.raises(InvalidConfig, match="replaced 5 times while they were read"):
        TlsFiles(tls)


def test_a_name_that_is_no_path_is_refused(authority: Authority) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        TlsFiles(Tls(authority.ca, "node\0.pem", "node.key"))


def test_a_key_without_its_certificate_is_reported_once_and_changes_nothing(authority: Authority, tls: Tls) -> None:
    files = TlsFiles(tls)
    before = files.pem
    bob = authority.client("bob")
    assert bob.key and bob.certificate and tls.key and tls.certificate
    Path(bob.key).replace(tls.key)
    with pytest.raises(InvalidConfig, match="are not a certificate and its key"):
        files.refresh()
    assert not files.refresh()
    assert files.pem == before
    Path(bob.certificate).replace(tls.certificate)
    assert files.refresh()
    assert files.pem == contents(tls)


def test_a_file_written_anew_with_the_same_contents_is_no_change(tls: Tls) -> None:
    files = TlsFiles(tls)
    assert tls.ca
    Path(tls.ca).write_bytes(Path(tls.ca).read_bytes())
    assert not files.refresh()


def test_a_mounted_secret_is_replaced_by_its_symbolic_link(authority: Authority, tmp_path: Path) -> None:
    """As Kubernetes does: the files are links into a directory that is itself a link, which is replaced."""
    for version, name in (("one", "alice"), ("two", "bob")):
        made = authority.client(name)
        assert made.key and made.certificate
        (tmp_path / version).mkdir()
        Path(made.key).replace(tmp_path / version / "tls.key")
        Path(made.certificate).replace(tmp_path / version / "tls.crt")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "..data").symlink_to(tmp_path / "one")
    for name in ("tls.key", "tls.crt"):
        (mounted / name).symlink_to(Path("..data") / name)
    files = TlsFiles(Tls(authority.ca, mounted / "tls.crt", mounted / "tls.key"))
    assert files.pem.certificate == (tmp_path / "one" / "tls.crt").read_bytes()
    (mounted / "..new").symlink_to(tmp_path / "two")
    (mounted / "..new").rename(mounted / "..data")
    assert files.refresh()
    assert files.pem.certificate == (tmp_path / "two" / "tls.crt").read_bytes()
