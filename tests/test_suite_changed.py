"""What `make test-changed` runs: every test that a change can break, and few others."""

from __future__ import annotations

import pytest

from tests.changed import EVERYTHING, affected, changed_since, repository

SOURCES = {
    "product/__init__.py": 'from importlib import import_module\n_HOME: Final = {"Writer": "product.writer"}\n',
    "product/writer.py": "from product.codec import encode\n",
    "product/codec.py": "from product.fast import encode_fast\n",
    "product/fast.pyx": "from product.table cimport row\n",
    "product/table.pxd": "",
    "product/words.py": '"""See docs/page.md."""\nHINT = "see docs/page.md"\n',
    "product/nested.py": "",
    "product/program/__main__.py": "import product.words\n",
    "product/jobs/copy.py": "from .. import words\n",
    "tests/conftest.py": "",
    "tests/a/conftest.py": "import product.words\n",
    "tests/a/test_page.py": 'TEXT = open("docs/page.md")\n',
    "tests/helper.py": "def build(): from product import Writer\n",
    "tests/test_helped.py": "from tests.helper import build\n",
    "tests/test_program.py": 'COMMAND = ["python", "-m", "product.program"]\n',
    "tests/test_jobs.py": 'NAME = f"product.jobs.{name}"\n',
    "tests/test_nested.py": "import product\nproduct.nested.read()\n",
    "tests/test_typed.py": "if TYPE_CHECKING:\n    from product.writer import Writer\n",
    "tests/test_tidy.py": 'command = ["git", "ls-files"]\n',
    "docs/page.md": "",
    "Makefile": "",
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param("product/writer.py", {"tests/test_helped.py"}, id="imported in a function, by a lazy package"),
        pytest.param("product/codec.py", {"tests/test_helped.py"}, id="imported by what is imported"),
        pytest.param("product/table.pxd", {"tests/test_helped.py"}, id="cimported"),
        pytest.param(
            "product/words.py",
            {"tests/a/test_page.py", "tests/test_jobs.py", "tests/test_program.py"},
            id="imported by a conftest, a started module, a relative import",
        ),
        pytest.param("docs/page.md", {"tests/a/test_page.py"}, id="a page that a test names, and product code too"),
        pytest.param("product/nested.py", {"tests/test_nested.py"}, id="a module that its package loads on first use"),
        pytest.param("product/removed.py", set(), id="a removed file that was not used"),
        pytest.param("tests/test_typed.py", {"tests/test_typed.py"}, id="a test"),
        pytest.param("LICENSE", set(), id="harmless"),
    ],
)
def test_a_change_needs_the_tests_that_depend_on_it(changed: str, expected: set[str]) -> None:
    always = {"tests/test_tidy.py"}  # it lists the repository
    assert set(affected([changed], SOURCES)) == expected | always


def test_a_removed_module_needs_the_tests_that_still_import_it() -> None:
    without = {file: text for file, text in SOURCES.items() if file != "product/codec.py"}
    assert "tests/test_helped.py" in affected(["product/codec.py"], without)


def test_a_build_file_needs_all_tests_and_no_change_needs_none() -> None:
    assert affected(["docs/page.md", "Makefile"], SOURCES) == [EVERYTHING]
    assert affected([], SOURCES) == []


@pytest.mark.deep
def test_the_tests_of_this_repository_are_found() -> None:
    """A change of the producer needs the tests of the client, and no test of the log. Reading what 1,300 files import
    takes some 15 s."""
    found = affected(["tidelog/client/producer.py"], repository())
    assert {"tests/client/test_producer.py", "tests/client/test_client_processes.py", "tests/test_tidy.py"} <= set(
        found
    )
    assert "tests/storage/test_recovery.py" not in found
    assert all(isinstance(file, str) for file in changed_since("HEAD"))
