"""Import rules between packages and directories, checked in every source file (docs/architecture.md, Packages).

`tidelog` imports no other package. `storage` and `replication` import only its records, types, descriptions, errors,
epochs, ACLs and settings, and not each other; `replication` also Kafka's messages. `node` joins them; its directories
are floors that import downwards only. Only the outermost modules use the machine (sockets, threads, the builtin
`open`). `testbed` imports all of these, and none of them imports it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("tidelog", "pyspark_tidelog", "storage", "replication", "node", "testbed")
OURS = {*ROOMS, "bench", "examples", "tests"}
LEAVES = {
    "tidelog.records",
    "tidelog.types",
    "tidelog.cluster_descriptions",
    "tidelog.errors",
    "tidelog.epochs",
    "tidelog.security.acls",
    "tidelog.topic_snapshots",
    "tidelog.settings",
    "tidelog.tiering.remote_segment",
    "tidelog.values",
}
MESSAGES = {"tidelog.protocol.kafka"}
CODECS = {"cramjam", "crc32c", "crcmod", "lz4", "xxhash", "zlib", "zstandard"}
MACHINE = {
    "asyncio",
    "grpc",
    "multiprocessing",
    "select",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "uvloop",
}
# The modules of a node that may create sockets, threads and loops. All others get them through their constructors.
NODE_OUTERMOST = {
    "__main__.py",
    "connections.py",
    "health.py",
    "kafka_server.py",
    "http_connections.py",
    "http_tls.py",
    "kafka_tls.py",
    "key_source.py",
    "listener_certificates.py",
    "thread_executor.py",
    "server.py",
    "server_tls.py",
    "stderr_lines.py",
    "transport.py",
    "free_ports.py",
    "local_cluster.py",
    "probe.py",
    "process.py",
}
# Files and directories that may call the builtin `open` or a method of Path that opens a file.
MAY_OPEN = {
    "storage/files/os_files.py",
    "node/__main__.py",
    "node/listeners/grpc/connections.py",
    "node/process/local_cluster.py",
    "node/process/process.py",
    "node/runtime/process_usage.py",
    "node/security/key_source.py",
    "tidelog/cli",
    "tidelog/forks.py",
    "tidelog/grpc_environment.py",
    "tidelog/jobs",
    "tidelog/protocol/kafka/schemas",
    "tidelog/security/tls_files.py",
    "tidelog/security/sasl_user.py",
    "tidelog/spark",
    "testbed/disk_faults.py",
    "testbed/faulty_clock.py",
    "testbed/socket_owners.py",
}
# The directories of a node, the highest first: each imports only those below it.
FLOORS = (
    "process",
    "observability",
    "controller",
    "listeners",
    "boundary",
    "requests",
    "tiering",
    "coordinators",
    "replicas",
    "quorum",
    "metadata",
    "settings",
    "security",
    "quotas",
    "runtime",
    "api",
)
# The modules directly in `node`, which name the settings of a node.
SETTINGS = {
    "config",
    "coordinator_settings",
    "http_settings",
    "listener_addresses",
    "listener_settings",
    "replication_settings",
    "setting_hints",
    "tiering_settings",
    "topic_defaults",
}


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    module: str

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    def within(self, names: set[str]) -> bool:
        return any(self.module == name or self.module.startswith(f"{name}.") for name in names)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def sources(room: str) -> list[Path]:
    return [path for path in sorted((ROOT / room).rglob("*.py")) if "v1" not in path.parts]


def imports(path: Path) -> Iterator[Import]:
    """Yields every import of a file, also inside functions. `from a import b` counts as `a.b`."""
    file = str(path.relative_to(ROOT))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import; write the absolute name"
            for alias in node.names:
                yield Import(file, node.lineno, f"{node.module}.{alias.name}")


def imports_of(room: str) -> list[Import]:
    return [found for path in sources(room) for found in imports(path)]


def standard(found: Import) -> bool:
    return found.top in sys.stdlib_module_names


def test_tidelog_imports_no_other_room() -> None:
    assert [str(found) for found in imports_of("tidelog") if found.top in OURS - {"tidelog"}] == []


def test_types_errors_and_epochs_need_only_the_standard_library() -> None:
    leaves = [ROOT / f"tidelog/{name}.py" for name in ("types", "errors", "epochs")]
    strays = [found for path in leaves for found in imports(path) if not standard(found) and found.top != "tidelog"]
    inward = [found for path in leaves for found in imports(path) if found.top == "tidelog"]
    assert [str(found) for found in strays] == []
    assert [str(found) for found in inward if not found.within({"tidelog.types", "tidelog.errors"})] == []


def test_records_need_only_the_leaves_and_the_codecs() -> None:
    """Only the modules for Arrow columns import pyarrow, and only when they create one (test_light_import.py)."""
    strays = [
        found
        for path in sources("tidelog/records")
        for found in imports(path)
        if not (found.within(LEAVES) or found.top in CODECS or (standard(found) and found.top not in MACHINE))
        and not (found.top == "pyarrow" and path.name in ("columns.py", "arrow_columns.py"))
    ]
    assert [str(found) for found in strays] == []


@pytest.mark.parametrize("room", ["storage", "replication"])
def test_storage_and_replication_know_only_the_leaves(room: str) -> None:
    """Neither imports the other, grpc, asyncio, or a module for network access."""
    strays = [
        found
        for found in imports_of(room)
        if not (
            found.within(LEAVES | {room} | (MESSAGES if room == "replication" else set()))
            or found.top in CODECS
            or (standard(found) and found.top not in MACHINE)
        )
    ]
    assert [str(found) for found in strays] == []


def test_replication_does_no_input_or_output() -> None:
    reaching_out = {"io", "mmap", "os", "pathlib", "shutil", "tempfile", "threading", "time"}
    assert [str(found) for found in imports_of("replication") if found.top in reaching_out] == []


def test_node_imports_neither_producer_nor_consumer() -> None:
    forbidden = {
        *(f"tidelog.{name}" for name in ("cli", "client", "spark", "sync")),
        *(f"tidelog.{name}" for name in ("Admin", "Consumer", "Producer")),
    }
    outside = OURS - {"tidelog", "storage", "replication", "node"}
    strays = [found for found in imports_of("node") if found.within(forbidden) or found.top in outside]
    assert [str(found) for found in strays] == []


def test_the_testbed_needs_no_tests_and_no_test_tools() -> None:
    strays = [found for found in imports_of("testbed") if found.top in {"tests", "bench", "examples", "pytest"}]
    assert [str(found) for found in strays] == []


def test_only_the_console_of_a_node_imports_its_pages() -> None:
    """They bring the client, which no other part of a node uses (decision 0024)."""
    users = {found.file for found in imports_of("node") if found.within({"tidelog.console"})}
    assert users == {"node/listeners/http/console_listener.py", "node/process/console.py"}


def test_nothing_below_a_listener_knows_messages() -> None:
    """Handlers, replicas, quorum and controller take and return values. Only metadata records use protobuf."""
    messages = {"google.protobuf", "grpc_health", "tidelog.protocol"}
    above = ("node/listeners/", "node/process/")
    formats = {"node/metadata/metadata_codec.py"}
    strays = [
        found
        for found in imports_of("node")
        if found.within(messages) and not found.file.startswith(above) and found.file not in formats
    ]
    assert [str(found) for found in strays] == []


def test_only_the_outermost_modules_of_a_node_reach_sockets_and_threads() -> None:
    outward = (MACHINE - {"asyncio"}) | {"threading", "concurrent"}
    strays = [
        found for found in imports_of("node") if found.top in outward and Path(found.file).name not in NODE_OUTERMOST
    ]
    assert [str(found) for found in strays] == []


def test_pyspark_finds_a_package_that_only_points_at_tidelog() -> None:
    assert [str(found) for found in imports_of("pyspark_tidelog") if found.top not in {"tidelog", "__future__"}] == []


def test_the_builtin_open_stays_in_the_outermost_modules() -> None:
    """All other modules use the `Files` that they get through their constructors."""
    opening = {"open", "read_bytes", "read_text", "write_bytes", "write_text"}
    strays = []
    for room in ("tidelog", "storage", "replication", "node", "testbed"):
        for path in sources(room):
            file = str(path.relative_to(ROOT))
            if any(file == allowed or file.startswith(f"{allowed}/") for allowed in MAY_OPEN):
                continue
            for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(call, ast.Call):
                    continue
                name = call.func.id if isinstance(call.func, ast.Name) else None
                method = call.func.attr if isinstance(call.func, ast.Attribute) else None
                if name == "open" or method in opening - {"open"}:
                    strays.append(f"{file}:{call.lineno} calls {name or method}")
    assert strays == []


def test_proto_holds_no_python() -> None:
    """The import name `proto` belongs to another distribution. Here it is only the include root of the compiler."""
    assert list((ROOT / "proto").rglob("*.py")) == []


def modules_of(*rooms: str) -> dict[str, Path]:
    """The source files of packages, by module name."""
    modules: dict[str, Path] = {}
    for room in rooms:
        for path in sources(room):
            parts = path.relative_to(ROOT).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def arrows_of(module: str, modules: dict[str, Path]) -> Iterator[tuple[str, Import]]:
    """The modules that a module imports, each with the import, those for type checking included."""
    for found in imports(modules[module]):
        target = found.module if found.module in modules else found.module.rpartition(".")[0]
        if target in modules and target != module:
            yield target, found


def fail_on_circle(arrows: dict[str, dict[str, str]], what: str) -> None:
    """arrows: for each file or directory those that it imports, each with one such import."""
    try:
        TopologicalSorter({here: set(there) for here, there in arrows.items()}).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        steps = [arrows[after][before] for before, after in pairwise(circle) if before in arrows.get(after, {})]
        pytest.fail(f"these imports form a circle of {what}:\n" + "\n".join(steps))


def directory_of(module: str, modules: dict[str, Path]) -> str:
    """The directory of a module. A module directly in a package, or an `__init__`, counts as its own directory."""
    parent = module.rpartition(".")[0]
    return module if "." not in parent or modules[module].name == "__init__.py" else parent


def test_the_directories_import_each_other_in_no_circle() -> None:
    modules = modules_of(*ROOMS)
    arrows: dict[str, dict[str, str]] = {}
    for module in modules:
        here = directory_of(module, modules)
        for target, found in arrows_of(module, modules):
            if (there := directory_of(target, modules)) != here:
                arrows.setdefault(here, {}).setdefault(there, str(found))
    assert len(arrows) > 30, "too few directories were found"
    fail_on_circle(arrows, "directories")


@pytest.mark.parametrize("room", ["tidelog", "storage", "replication", "node"])
def test_the_modules_import_each_other_in_no_circle(room: str) -> None:
    """The rules of the simulator in `testbed` name the type of the world that calls them."""
    modules = modules_of(room)
    arrows = {module: {target: str(found) for target, found in arrows_of(module, modules)} for module in modules}
    fail_on_circle(arrows, "modules")


def test_each_floor_of_a_node_imports_only_those_below_it() -> None:
    modules = modules_of("node")

    def floor_of(module: str) -> int | None:
        """None: the package itself and its entry point, which are not part of a floor."""
        room = module.split(".")[1] if "." in module else "__main__"
        return None if room == "__main__" else FLOORS.index("settings" if room in SETTINGS else room)

    upward = [
        str(found)
        for module in modules
        for target, found in arrows_of(module, modules)
        if (here := floor_of(module)) is not None and (there := floor_of(target)) is not None and there < here
    ]
    assert upward == []


def test_a_test_module_imports_no_other() -> None:
    """What two of them share is a helper module beside them, named by its idea."""
    strays = [
        str(found) for found in imports_of("tests") if any(part.startswith("test_") for part in found.module.split("."))
    ]
    assert strays == []
