"""What programs find in `tidelog`: the names of the documents, and a hint for what is elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import tidelog

CLIENT_PAGE: Final = Path(__file__).resolve().parent.parent.parent / "docs" / "client.md"


def test_the_errors_of_the_document_are_found_where_it_says() -> None:
    """Its table names errors without their module, which the line above it tells."""
    section = CLIENT_PAGE.read_text(encoding="utf-8").split("### What an error means\n")[1].split("\n### ")[0]
    assert "`tidelog.errors`" in section
    names = re.findall(r"`([A-Z]\w+)`", section)
    assert len(names) > 5
    for name in names:
        if name not in {"NEVER", "TimeoutError"}:
            assert issubclass(getattr(tidelog, name, None) or getattr(tidelog.errors, name), tidelog.TidelogError)


def test_an_error_asked_for_in_the_wrong_place_says_where_it_is() -> None:
    program = "import tidelog; tidelog.errors.BufferExhausted; tidelog.BufferExhausted"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert run.stderr.splitlines()[-1] == (
        "AttributeError: module 'tidelog' has no attribute 'BufferExhausted': it is tidelog.errors.BufferExhausted"
    )


def test_a_misspelt_name_is_an_error_at_run_time_and_to_type_checkers() -> None:
    """`mypy` reports the comments below as not needed where it knows no error."""
    for name in ("Porducer", "Enum", "errors_"):
        with pytest.raises(AttributeError, match=f"^module 'tidelog' has no attribute '{name}'$"):
            getattr(tidelog, name)
    with pytest.raises(AttributeError):
        tidelog.Porducer("127.0.0.1:1")  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        from tidelog import Porducer  # type: ignore[attr-defined]  # noqa: F401
