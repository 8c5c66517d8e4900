"""Who may read the files of a node: warnings about its keys, and the modes of what it creates."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from storage.files.os_files import OsFiles
from tests.certificates import Authority, settings_of


def test_a_node_warns_of_a_key_that_everyone_can_read(tmp_path: Path) -> None:
    """The node ends at once for another reason, which comes later."""
    tls = Authority(tmp_path).node()
    Path(tls.key_file).chmod(0o644)
    settings = {
        **settings_of(tls),
        "node.id": 0,
        "controller.quorum.bootstrap.servers": ["127.0.0.1:9192"],
        "listeners": ["GRPC://127.0.0.1:0", "KAFKA://127.0.0.1:0"],
        "listener.security.protocol.map": ["GRPC:GRPC_SSL", "KAFKA:SSL"],
        "log.dirs": [str(tmp_path / "data")],
        "super.users": ["User:CN=alice"],
        "audit.log.file": str(tmp_path / "missing" / "audit.log"),
    }
    lines = [f'"{key}" = {value if isinstance(value, list) else repr(value)}' for key, value in settings.items()]
    (tmp_path / "node.toml").write_text("\n".join(lines))
    said = ""
    for mode in (0o644, 0o640):
        Path(tls.key_file).chmod(mode)
        ended = subprocess.run(
            [sys.executable, "-m", "node", "--config", str(tmp_path / "node.toml")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "audit.log.file" in ended.stderr
        said += ended.stderr
    assert said.count("every user of this machine can read ssl.key.file") == 1
    assert f"can read ssl.key.file, {tls.key_file}: chmod 600" in said


def test_what_is_created_can_be_read_by_the_group_and_by_nobody_else(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        files = OsFiles()
        files.make_directory(str(tmp_path / "data"))
        files.open(str(tmp_path / "data" / "audit.log"), create=True).close()
        files.map(str(tmp_path / "data" / "index"), 4_096, writable=True).close()
        files.lock(str(tmp_path / "data" / ".lock")).release()
    finally:
        os.umask(before)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "data").iterdir()}
    assert modes == {"audit.log": 0o640, "index": 0o640, ".lock": 0o640}
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o750
