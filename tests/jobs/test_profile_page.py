"""The page of `tidelog job profile --html`: keys are what producers chose."""

from __future__ import annotations

import pytest

from tidelog.jobs.profile_figures import KeyCounts, PartitionProfile, topic_profile
from tidelog.jobs.profile_page import profile_page


def test_keys_are_interpreted_neither_by_the_browser_nor_by_the_plots() -> None:
    """Two dollar signs are a formula to Matplotlib: it raised an error for what is none."""
    pytest.importorskip("matplotlib")
    keys = KeyCounts(3, ((rb"$\frac{$", 3), (b"<script>x</script>", 2), ("\x1b[31m\u202e".encode(), 1)))
    page = profile_page([topic_profile([PartitionProfile("orders", 0)], keys, 1000)], "<b>orders</b>")
    assert r"<td>$\frac{$</td>" in page
    assert "<script>" not in page
    assert "&lt;script&gt;x&lt;/script&gt;" in page
    assert "&lt;b&gt;orders&lt;/b&gt;" in page
    assert "0x1b5b33316de280ae" in page
    assert "\x1b" not in page
