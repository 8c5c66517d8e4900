"""The documents agree with the repository: every link and every path leads to a file, the terms are those of the
glossary, and every rule or scenario that code cites by number is described in docs/rules.md.

A path is text between backticks that names a source file (`segment.py`, `storage/log/log.py`,
`tests/storage/test_seed_*.py`) or begins with a directory of the repository (`deploy/k8s`). A bare file name must be
the name of some file; a path with a directory must exist from the root or from the directory of the document.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TOP_DIRECTORIES = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
SOURCES = (".md", ".proto", ".py", ".pyi", ".pyx")
BUILT = ("bench-out", "build", "chaos-out", "demo-out", "dist", "tidelog/_server")
"""Directories that a build, the demo or a bench creates."""

LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
MODULE = re.compile(r"python -m ([a-z_][\w.]*)")


@cache
def file_names() -> frozenset[str]:
    """The names of all files of the repository."""
    hidden = [ROOT / ".ci"]
    shown = [ROOT / name for name in sorted(TOP_DIRECTORIES)]
    found = {path.name for top in (*shown, *hidden) for path in top.rglob("*") if path.is_file()}
    return frozenset(found | {path.name for path in ROOT.iterdir() if path.is_file()})


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip() for heading in headings]
    return frozenset(heading.lower().replace(" ", "-") for heading in plain)


def broken_links(page: Path, text: str) -> Iterator[str]:
    """The relative links of the text that lead nowhere."""
    for target in LINK.findall(CODE.sub("", FENCE.sub("", text))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        if not linked.exists() or (anchor and (linked.suffix != ".md" or anchor not in anchors(linked))):
            yield target


def broken_paths(page: Path, text: str) -> Iterator[str]:
    """The paths and modules between backticks that do not exist."""
    for code in CODE.findall(FENCE.sub("", text)):
        for module in MODULE.findall(code):
            path = ROOT / module.replace(".", "/")
            if path.parts[len(ROOT.parts)] in TOP_DIRECTORIES and not (
                path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
            ):
                yield code
        if " " in code or code.startswith("/"):
            continue
        path_text = code.rstrip("/")
        inside = path_text.split("/")[0] in TOP_DIRECTORIES and "/" in path_text
        if not (inside or path_text.endswith(SOURCES)) or path_text.startswith((*BUILT, ".")):
            continue
        if "/" not in path_text:
            found = any(fnmatch(name, path_text) for name in file_names())
        else:
            found = any(any(base.glob(path_text)) for base in (ROOT, page.parent))
        if not found:
            yield code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_lead_to_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [*broken_links(page, text), *broken_paths(page, text)] == []


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[a page](docs/no-such-page.md)", "docs/no-such-page.md"),
        ("[a heading](README.md#no-such-heading)", "README.md#no-such-heading"),
        ("`no_such_module.py`", "no_such_module.py"),
        ("`storage/no_such_file.py`", "storage/no_such_file.py"),
        ("`deploy/no-such-directory`", "deploy/no-such-directory"),
        ("`tests/storage/test_no_such_*.py`", "tests/storage/test_no_such_*.py"),
        ("`python -m storage.no_such_module PATH`", "python -m storage.no_such_module PATH"),
    ],
)
def test_a_broken_link_or_path_is_noticed(text: str, broken: str) -> None:
    page = ROOT / "README.md"
    assert [*broken_links(page, text), *broken_paths(page, text)] == [broken]


def test_links_to_existing_files_and_paths_are_accepted() -> None:
    text = "[a](docs/README.md) [b](#two-commands) `storage/log/log.py` `log.py` `python -m node X` `deploy/k8s`"
    page = ROOT / "README.md"
    assert [*broken_links(page, text), *broken_paths(page, text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_rows_of_a_table_have_as_many_cells_as_its_header(page: Path) -> None:
    """A row that was joined with the next one, or whose `|` is not escaped, is displayed wrongly."""
    cells, wrong = 0, []
    for line in FENCE.sub("", page.read_text(encoding="utf-8")).splitlines():
        if not line.lstrip().startswith("|"):
            cells = 0
            continue
        found = len(re.findall(r"(?<!\\)\|", CODE.sub("", line)))
        cells = cells or found
        if found != cells or ("|---|" in line and set(line) - set("|- ")):
            wrong.append(line)
    assert wrong == []


def test_every_page_is_in_an_index() -> None:
    indexes = {
        "docs": "docs/README.md",
        "docs/decisions": "docs/decisions/README.md",
        "docs/storage": "docs/storage.md",
    }
    listed = {
        (ROOT / index).parent.joinpath(target).resolve()
        for index in indexes.values()
        for target in LINK.findall((ROOT / index).read_text(encoding="utf-8"))
    }
    pages = {page for page in PAGES if page.parent != ROOT and page.name != "README.md"}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - listed) == []


FORMER_TERMS = re.compile(
    r"\b(data (?:director\w+|folders?)|held|desks?|cut(?:s|ting)?|life|lives|standings?|books?|care|upkeep|own bytes"
    r"|shel(?:f|ves)|mend(?:ed|s)?|whoever|nobody can tell)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_an_example_of_a_group_waits_long_enough_to_join_it(page: Path) -> None:
    """A loop that ends with an empty list has read nothing where joining takes longer than `poll` waits
    by default: README's did so on a new cluster."""
    examples = [block for block in FENCE.findall(page.read_text(encoding="utf-8")) if "group=" in block]
    assert [block for block in examples if re.search(r"while .*\.poll\(\)", block)] == []


def former_terms(text: str) -> list[str]:
    """The former terms in the prose of a page: outside fences, code and the targets of links."""
    prose = re.sub(r"\]\([^)\s]+\)", "]", CODE.sub("", FENCE.sub("", text)))
    return FORMER_TERMS.findall(prose)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_former_terms_do_not_return(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.name == "glossary.md":
        text, former = text.split("## Former terms")
        assert former_terms(former), "the glossary lists them"
    assert former_terms(text) == []


def test_a_former_term_is_noticed() -> None:
    assert former_terms("The desk holds what `was_held` ([x](held.md)) until the log is cut.") == ["desk", "cut"]


TRAP_TABLES = [ROOT / "docs/groups.md", ROOT / "docs/transactions.md"]
TRAP = re.compile(r"\btraps? (\d+(?:(?:, | and )\d+)*)", re.IGNORECASE)


def traps(text: str) -> set[tuple[str, str]]:
    """Numbers of traps, each with a test that a row of a table names for it."""
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", text, re.MULTILINE)
    return {(number, name) for number, row in rows for name in re.findall(r"`(test_\w+)`", row)}


@pytest.mark.parametrize("page", TRAP_TABLES, ids=lambda page: page.name)
def test_each_trap_has_tests_that_name_it(page: Path) -> None:
    named = {
        (number, function.name)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if path != Path(__file__).resolve()
        for function in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for numbers in TRAP.findall(ast.get_docstring(function) or "")
        for number in re.findall(r"\d+", numbers)
    }
    wanted = traps(page.read_text(encoding="utf-8").split("## Traps that others fell into")[1])
    assert wanted
    assert wanted - named == set()


CITING = [ROOT / name for name in ("bench", "examples", "node", "replication", "storage", "tests", "tidelog")]
NUMBERS = r"(\d+(?:(?:, | and )\d+)*)"
CITATION = re.compile(rf"\b(scenario|rule|design,? section)s? {NUMBERS}(?!\.\d)", re.IGNORECASE)
SHORT = re.compile(r'"(S)(\d+)[",]')


def citations(text: str) -> set[tuple[str, str]]:
    """The rules, scenarios and sections of the design that a file cites: what, and its number."""
    joined = re.sub(r"\s+", " ", text)
    found = [(what.lower(), numbers) for what, numbers in CITATION.findall(joined)]
    found += [("scenario", number) for _, number in SHORT.findall(joined)]
    return {(what.split()[-1], number) for what, numbers in found for number in re.findall(r"\d+", numbers)}


def described(rules: str) -> set[tuple[str, str]]:
    """What docs/rules.md describes."""
    return {
        *(("scenario", number) for number in re.findall(r"^\| (\d+) \|", rules, re.MULTILINE)),
        *(("rule", number) for number in re.findall(r"^### Rule (\d+):", rules, re.MULTILINE)),
        *(("section", number) for number in re.findall(r"^Section (\d+)\.", rules, re.MULTILINE)),
    }


def test_every_cited_rule_and_scenario_is_described() -> None:
    rules = described((ROOT / "docs/rules.md").read_text(encoding="utf-8"))
    cited = {
        (str(path.relative_to(ROOT)), *citation)
        for top in CITING
        for path in sorted(top.rglob("*.py"))
        if path != Path(__file__).resolve()
        for citation in citations(path.read_text(encoding="utf-8"))
    }
    assert len(cited) > 50, "the citations are found"
    assert sorted(each for each in cited if each[1:] not in rules) == []


def test_a_citation_without_its_rule_is_noticed() -> None:
    text = 'See design, section 4, rule 9, scenarios 3, 10 and 77; Mutant(plant, "S88", story).'
    rules = described((ROOT / "docs/rules.md").read_text(encoding="utf-8"))
    assert citations(text) - rules == {("rule", "9"), ("scenario", "77"), ("scenario", "88")}
