"""The wheel, as a user meets it: built from the sources, installed alone in an empty environment."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.wheels import build_wheel, install_alone, run

ROOT = Path(__file__).resolve().parent.parent
HEAVY = (
    "cramjam",
    "grpc",
    "google.protobuf",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "click",
    "rich",
    "uvloop",
)
SERVER = ("storage", "replication", "node", "testbed")

pytestmark = [pytest.mark.slow, pytest.mark.deep]


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_alone(wheel, tmp_path_factory.mktemp("empty") / "venv")


def test_server_packages_are_installed_under_tidelog_server(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if not re.match(r"tidelog-[^/]*\.(dist-info|data)/", name)}
    assert tops == {"tidelog", "pyspark_tidelog"}
    for room in SERVER:
        modules = [path for path in (ROOT / room).rglob("*.py") if "__pycache__" not in path.parts]
        assert modules
        for path in modules:
            assert f"tidelog/_server/{path.relative_to(ROOT)}" in names


def test_wheel_carries_types_licence_and_generated_code(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "tidelog/py.typed" in names
    assert "tidelog/protocol/v1/data_pb2.py" in names
    assert "tidelog/protocol/v1/data_pb2.pyi" in names
    assert "tidelog/protocol/kafka/messages/offset_commit_value.py" in names
    assert not any(name.startswith("tidelog/protocol/kafka/schemas/") for name in names)
    assert {"LICENSE", "NOTICE"} <= {name.rpartition("licenses/")[2] for name in names}
    assert not any(name.startswith(("tests/", "bench/", "examples/", "proto/")) for name in names)


def test_import_tidelog_is_light(python: Path) -> None:
    """In an environment without any dependency `import tidelog` works, and it loads nothing but our own leaves."""
    script = "import json, sys, tidelog; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run(python, "-c", script, cwd=python.parent)))
    heavy = {name for name in loaded if name.startswith(tuple(f"{h}." for h in HEAVY)) or name in HEAVY}
    server = {name for name in loaded if name.partition(".")[0] in SERVER or name.startswith("tidelog._server")}
    assert heavy | server == set()


def test_import_tidelog_stays_light_where_everything_is_installed(tmp_path: Path) -> None:
    script = (
        f"import json, sys; sys.path.insert(0, {str(ROOT)!r}); import tidelog; print(json.dumps(sorted(sys.modules)))"
    )
    loaded = set(json.loads(run(sys.executable, "-c", script, cwd=tmp_path)))
    assert {name for name in loaded if name in HEAVY} == set()


def test_server_packages_import_from_where_the_wheel_lays_them(python: Path) -> None:
    """What starts a node puts `tidelog/_server` on the new process's path; imports then read as in a checkout."""
    library = sysconfig.get_path("purelib")  # by PYTHONPATH: dependencies, without the .pth of a checkout
    script = """if True:
        import sys
        from pathlib import Path
        import tidelog
        sys.path.insert(0, str(Path(tidelog.__file__).parent / "_server"))
        import node, replication, storage.log.log
        print(storage.log.log.__file__)
    """
    where = run(python, "-c", script, cwd=python.parent, PYTHONPATH=library).strip()
    assert where.endswith("tidelog/_server/storage/log/log.py")


def test_the_commands_of_the_wheel_start_nodes_and_read_their_files(python: Path, tmp_path: Path) -> None:
    library = sysconfig.get_path("purelib")
    usage = run(python.parent / "tidelog-node", "--help", cwd=tmp_path, PYTHONPATH=library)
    assert usage.startswith("usage: tidelog-node [-h] --config FILE")
    usage = run(python.parent / "tidelog-probe", "--help", cwd=tmp_path, PYTHONPATH=library)
    assert usage.startswith("usage: tidelog-probe [-h] [--ready | --caught-up]")
    dumped = run(python.parent / "tidelog", "log", "dump", tmp_path, cwd=tmp_path, PYTHONPATH=library)
    assert "No damage found" in dumped


FIXTURES = """
import tidelog.sync

def test_the_fixtures_are_found_by_themselves(tidelog_node, tidelog_simulation):
    import testbed
    assert testbed.__file__.endswith("tidelog/_server/testbed/__init__.py")
    topic = tidelog_node.create_topic()
    with tidelog.sync.Producer(tidelog_node.bootstrap) as producer:
        assert producer.send(topic, b"a").offset == 0
    tidelog_simulation.create_topic(topic)
    tidelog_simulation.check()
"""


def test_pytest_finds_the_fixtures_of_the_wheel(python: Path, tmp_path: Path) -> None:
    (tmp_path / "test_fixtures.py").write_text(FIXTURES)
    library = sysconfig.get_path("purelib")
    told = run(python, "-m", "pytest", "-q", "--tidelog-seeds", "1", cwd=tmp_path, PYTHONPATH=library)
    assert "1 passed" in told


ROUND_TRIP = """if True:
    from tidelog.records import Record, RecordBatch, analyze, build_batch, implementation, Rules
    from tidelog.records.v2.fast_paths import check_records
    records = [Record(0, 5, b"k", b"v", (("h", None),)), Record(1, 6, None, None)]
    batch = build_batch(records)
    assert RecordBatch(batch).record_list() == list(RecordBatch(batch).records()) == records
    assert analyze(batch).record_count == 2
    facts = check_records(
        batch[61:], 2, base_offset=0, last_offset_delta=1, base_timestamp=5, rules=Rules(key_required=True)
    )
    assert [problem.record for problem in facts.problems] == [1]
    print(implementation())
"""
"""Writes, reads and checks a batch, and says which codec did it."""


def extensions_in(wheel: Path) -> set[str]:
    """Names of the compiled modules that a wheel carries."""
    names = zipfile.ZipFile(wheel).namelist()
    return {Path(name).name.partition(".")[0] for name in names if name.endswith(".so")}


def test_wheel_carries_the_compiled_codec_and_uses_it(wheel: Path, python: Path) -> None:
    """Every Cython source became a module, and an installed wheel takes it unless asked not to."""
    sources = [*(ROOT / "tidelog").rglob("*.pyx"), *(ROOT / "storage").rglob("*.pyx")]
    assert extensions_in(wheel) == {path.stem for path in sources}
    library = sysconfig.get_path("purelib")
    assert run(python, "-c", ROUND_TRIP, cwd=python.parent, PYTHONPATH=library).strip() == "compiled"
    asked = run(python, "-c", ROUND_TRIP, cwd=python.parent, PYTHONPATH=library, TIDELOG_PURE_PYTHON="1")
    assert asked.strip() == "pure Python"


@pytest.mark.parametrize(
    "environment",
    [{"CC": "/bin/false", "LDSHARED": "/bin/false"}, {"TIDELOG_PURE_PYTHON": "1"}],
    ids=["no compiler", "asked for"],
)
def test_wheel_builds_without_a_compiler(tmp_path: Path, environment: dict[str, str]) -> None:
    """The build continues without the compiled codec, and the Python reference is used."""
    wheel = build_wheel(tmp_path, ROOT, **environment)
    assert extensions_in(wheel) == set()
    python = install_alone(wheel, tmp_path / "venv")
    assert run(python, "-c", "import tidelog; print('imported')", cwd=tmp_path).strip() == "imported"
    library = sysconfig.get_path("purelib")
    assert run(python, "-c", ROUND_TRIP, cwd=tmp_path, PYTHONPATH=library).strip() == "pure Python"


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    pins = dict(line.lower().replace("_", "-").split("==") for line in pinned_lines())
    for requirement in (line.partition(";")[0] for line in wanted):
        if requirement.startswith("tidelog["):
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?(?:>=([0-9.]+))?", requirement)
        assert match is not None, requirement
        name, lowest = match[1].lower().replace("_", "-"), match[2]
        assert name in pins, f"{name} is not pinned: make constraints"
        if lowest:
            assert numbers(pins[name]) >= numbers(lowest), f"{name} is pinned below {lowest}"


def pinned_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line.partition(";")[0] for line in lines if line and not line.startswith("#")]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
