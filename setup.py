"""The two things that pyproject.toml cannot say: where the packages lie, and the optional compiled hot loops.

Packages: `tidelog` and `pyspark_tidelog` keep their place; `storage`, `replication`, `node` and `testbed` are laid
under `tidelog/_server/` (docs/decisions/0001). Extensions: every `.pyx` file of `tidelog` and `storage` is compiled
where Cython and a C compiler are; where they are not, or where `TIDELOG_PURE_PYTHON=1` asks for it, the build continues
without, says so, and the pure-Python reference beside them serves.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, find_namespace_packages, setup
from setuptools.command.build_ext import build_ext

SERVER_ROOTS = ("storage", "replication", "node", "testbed")
SERVER_HOME = "tidelog._server"


def found(root: str) -> list[str]:
    """Names of `root` and all packages below it, with or without an `__init__.py`.

    Kafka's schemas are left out: an installation has the code that is generated from them.
    """
    return find_namespace_packages(
        include=[root, f"{root}.*"],
        exclude=["*.__pycache__", "*.__pycache__.*", f"{SERVER_HOME}*", "tidelog.protocol.kafka.schemas"],
    )


def warn(cause: object) -> None:
    print(
        f"warning: tidelog is built without its compiled record codec: {cause}.\n"
        "         It works in pure Python, slower. For the compiled one install a C compiler "
        "(Debian: apt install gcc libc6-dev python3-dev) and build again.",
        file=sys.stderr,
    )


def module_name(source: str) -> str:
    """The module that a .pyx file is compiled into, where its package is laid."""
    name = source.removesuffix(".pyx").replace("/", ".")
    return f"{SERVER_HOME}.{name}" if name.partition(".")[0] in SERVER_ROOTS else name


def extensions() -> list[Extension]:
    sources = sorted(str(path) for directory in ("tidelog", "storage") for path in Path(directory).rglob("*.pyx"))
    if not sources:
        return []
    if os.environ.get("TIDELOG_PURE_PYTHON", "0") != "0":
        warn("TIDELOG_PURE_PYTHON is set")
        return []
    try:
        from Cython.Build import cythonize
    except ImportError as cause:
        warn(cause)
        return []
    modules = [
        Extension(module_name(source), [source], extra_compile_args=["-O3"], optional=True) for source in sources
    ]
    compiled = list(cythonize(modules, language_level=3, build_dir="build/cython", quiet=True))
    for module in compiled:
        module.optional = True  # cythonize does not hand it on
    return compiled


class BuildWhatCompiles(build_ext):
    """`build_ext` that continues without an extension that does not compile, and prints what is missing."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as cause:  # noqa: BLE001 - whatever a compiler, or its absence, raises
            warn(f"{ext.name}: {cause}")


client = [name for root in ("tidelog", "pyspark_tidelog") for name in found(root)]
server = [name for root in SERVER_ROOTS for name in found(root)]

setup(
    packages=client + [f"{SERVER_HOME}.{name}" for name in server],
    package_dir={f"{SERVER_HOME}.{root}": root for root in SERVER_ROOTS},
    package_data={"*": ["py.typed", "*.pyi"]},
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildWhatCompiles},
    options={"build_ext": {"parallel": True}},  # on all cores: a dozen modules take half a minute on one
)
