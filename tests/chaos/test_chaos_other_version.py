"""The version that a rolling upgrade comes from: the newest release, unless another one is named."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.other_version import newest_release
from tests.wheels import run

COMMIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "--message", "one")


def test_the_newest_release_is_the_highest_version_of_the_tags(tmp_path: Path) -> None:
    run("git", "init", "--quiet", cwd=tmp_path)
    run(*COMMIT, cwd=tmp_path)
    run("git", "tag", "demo", cwd=tmp_path)
    assert newest_release(tmp_path) is None
    for tag in ("v0.10.0", "v0.9.0"):
        run("git", "tag", tag, cwd=tmp_path)
    assert newest_release(tmp_path) == "v0.10.0"


def test_without_a_repository_there_is_no_release(tmp_path: Path) -> None:
    assert newest_release(tmp_path) is None
