"""Which tests depend on the files that changed: what `make test-changed` runs.

    python -m tests.changed --since COMMIT      prints the test files, or "tests" for all of them

A Python file depends on what it imports anywhere in it, with the packages above, and on the modules that its commands
start; a test also on the modules and files that its strings name, and on the conftest.py files above it. What this
cannot know counts as needed: tests that list the repository, and all tests if a build file changed.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Final, TypeGuard

ROOT: Final = Path(__file__).resolve().parent.parent
EVERYTHING: Final = "tests"
KNOWN_KINDS: Final = frozenset({".py", ".pyx", ".pxd", ".pyi", ".md", ".svg"})
HARMLESS: Final = frozenset({"LICENSE", "NOTICE", ".gitignore", "tests/durations.json"})
"""Files of other kinds that no test reads but those that list the repository."""
LISTS_SOURCES: Final = re.compile(r'ls-files|rglob\("[\w*]*\.(py|pyx|md)"\)')
"""A test with it reads files of the repository that it does not name."""
CYTHON_IMPORT: Final = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+([\w, ]+)|c?import\s+([\w.]+))", re.MULTILINE)


class Sources:
    """The files of a repository, and which of them each Python file depends on directly."""

    def __init__(self, files: Mapping[str, str]) -> None:
        """files: the text of each Python and Cython file, and at least the names of the others."""
        self._files = files
        self._named_so: dict[str, list[str]] = defaultdict(list)
        self._modules: dict[str, list[str]] = defaultdict(list)
        for file in files:
            path = PurePosixPath(file)
            self._named_so[path.name].append(file)
            if path.suffix in (".py", ".pyx", ".pxd"):
                parts = path.with_suffix("").parts
                self._modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)].append(file)
        self._lazy = dict(self._lazy_names())

    def needs(self, file: str) -> set[str]:
        """The files that a file needs directly."""
        text, suffix = self._files[file], PurePosixPath(file).suffix
        if suffix == ".py":
            found = set(self._of_python(file, text))
        elif suffix in (".pyx", ".pxd"):
            found = set(self._of_cython(text)) | set(self._module(".".join(PurePosixPath(file).with_suffix("").parts)))
        else:
            found = set()
        if file.startswith("tests/"):
            found.update(str(parent / "conftest.py") for parent in PurePosixPath(file).parents)
        return {each for each in found if each in self._files and each != file}

    def _of_python(self, file: str, text: str) -> Iterator[str]:
        package = PurePosixPath(file).parent.parts
        tree = ast.parse(text)
        ignored = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # documentation
        for node in ast.walk(tree):
            if (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING") or is_lazy_table(node):
                ignored.update(map(id, ast.walk(node)))
        for node in ast.walk(tree):
            if id(node) in ignored:
                continue
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name in imported_names(node, package):
                    yield from self._module(name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from self._named(node.value) if file.startswith("tests/") else self._module_called(node.value)
            else:
                yield from self._used(node)

    def _used(self, node: ast.AST) -> Iterator[str]:
        """`tidelog.Producer` of a package that loads its names; `-m MODULE`; the data source that Spark looks up."""
        match node:
            case ast.Attribute(value=ast.Name(id=package), attr=name) if home := self._lazy.get(f"{package}.{name}"):
                yield from self._module(home)
            case ast.Attribute(value=ast.Name(id=package), attr=name) if f"{package}.{name}" in self._modules:
                yield from self._module(f"{package}.{name}")
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                values = [each.value if isinstance(each, ast.Constant) else None for each in elements]
                for flag, module in pairwise(values):
                    if flag == "-m" and isinstance(module, str):
                        yield from self._module(module)
                        yield from self._module(f"{module}.__main__")
            case ast.Call(func=ast.Attribute(attr="format"), args=[ast.Constant(value="tidelog")]):
                yield from self._module("pyspark_tidelog")

    def _lazy_names(self) -> Iterator[tuple[str, str]]:
        """`package.NAME` with its module, for each name that a package loads on first use."""
        for file, text in self._files.items():
            if PurePosixPath(file).name == "__init__.py" and "import_module" in text:
                package = ".".join(PurePosixPath(file).parent.parts)
                for node in ast.walk(ast.parse(text)):
                    if is_lazy_table(node):
                        assert node.value is not None
                        for name, home in ast.literal_eval(node.value).items():
                            yield f"{package}.{name}", home

    def _of_cython(self, text: str) -> Iterator[str]:
        for source, names, plain in CYTHON_IMPORT.findall(text):
            for name in names.split(",") if names else [""]:
                yield from self._module(f"{source}.{name.strip()}".strip(".") if source else plain)

    def _module(self, name: str) -> Iterator[str]:
        """The file of a module, or of the module that has this name in it, and those of its packages."""
        name = self._lazy.get(name, name)
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            yield from self._modules.get(".".join(parts[:length]), ())

    def _module_called(self, value: str) -> Iterator[str]:
        """The module that is the whole of a string: product code names files for its users, not to read them."""
        if "." in value and value in self._modules:
            yield from self._module(value)

    def _named(self, value: str) -> Iterator[str]:
        """Paths and modules in a string: a file by its name or path, a module, all modules below `a.b.`."""
        for word in re.findall(r"[\w./-]*[./][\w./-]*", value):
            yield from (file for file in self._named_so.get(word.split("/")[-1], ()) if f"/{file}".endswith(f"/{word}"))
            if re.fullmatch(r"\w+(\.\w*)+", word):
                yield from self._module(word)
                if word.endswith("."):
                    yield from (each for name, them in self._modules.items() if name.startswith(word) for each in them)


def imported_names(node: ast.Import | ast.ImportFrom, package: tuple[str, ...]) -> Iterator[str]:
    """The dotted names that the statement imports, in a file of that package."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = package[: len(package) - node.level + 1] if node.level else ()
    for alias in node.names:
        yield ".".join([*base, *([node.module] if node.module else []), alias.name])


def is_lazy_table(node: ast.AST) -> TypeGuard[ast.AnnAssign]:
    """`_HOME: Final = {"NAME": "module", ...}` of a package."""
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_HOME"


def direct_users(sources: Mapping[str, str]) -> Mapping[str, set[str]]:
    """The files that need a file directly, for every file that is needed. It parses the whole repository."""
    graph = Sources(sources)
    users: dict[str, set[str]] = defaultdict(set)
    for file in sources:
        for needed in graph.needs(file):
            users[needed].add(file)
    return users


def distances(changed: Collection[str], users: Mapping[str, set[str]]) -> dict[str, int]:
    """Every file that depends on a changed one, with the length of the shortest way to it. users: the direct ones."""
    found = dict.fromkeys(changed, 0)
    waiting = deque(changed)
    while waiting:
        file = waiting.popleft()
        for user in users.get(file, set()) - found.keys():
            found[user] = found[file] + 1
            waiting.append(user)
    return found


def is_test(file: str) -> bool:
    return file.startswith("tests/") and PurePosixPath(file).name.startswith("test_") and file.endswith(".py")


def affected(changed: Collection[str], sources: Mapping[str, str]) -> list[str]:
    """The test files to run; [EVERYTHING] if a changed file is of a kind whose users cannot be found."""
    if not changed:
        return []
    if not all(PurePosixPath(file).suffix in KNOWN_KINDS or file in HARMLESS for file in changed):
        return [EVERYTHING]
    with_removed = {**dict.fromkeys(changed, ""), **sources}  # what imported a removed file is to fail
    always = {file for file, text in sources.items() if is_test(file) and LISTS_SOURCES.search(text)}
    depending = distances(changed, direct_users(with_removed))
    return sorted(always | {file for file in depending if is_test(file) and file in sources})


def repository(root: Path = ROOT) -> dict[str, str]:
    """The text of the Python and Cython files that git knows or could add, and the names of the others."""
    listing = git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    names = [name for name in listing.split("\0") if name and (root / name).is_file()]
    readable = (".py", ".pyx", ".pxd")
    return {name: (root / name).read_text(encoding="utf-8") if name.endswith(readable) else "" for name in names}


def changed_since(commit: str, root: Path = ROOT) -> list[str]:
    """Files that differ from the commit in the work tree, and those that git does not know yet."""
    names = git(root, "diff", "--name-only", "--no-renames", "-z", commit)
    new = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return sorted({name for name in (names + new).split("\0") if name})


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True, text=True).stdout


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.changed", description=__doc__)
    parser.add_argument("--since", default="HEAD", help="a commit (HEAD: what is not committed yet)")
    given = parser.parse_args(arguments)
    changed = changed_since(given.since)
    tests = affected(changed, repository())
    print(f"{len(changed)} files changed since {given.since}: {', '.join(tests) or 'no test'}", file=sys.stderr)
    print("\n".join(tests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
