"""The report of a run: one page that can be opened anywhere, with each fault as a band and each finding as text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.chaos.history import Acked, Probed
from tests.chaos.play import Played, PlayedBand, Result
from tests.chaos.report import Heading, page, write_report
from tests.chaos.verdict import CHECKS, Evidence, Finding, Silence, Span

HEADING = Heading(7, 3, "process")
PLAYED = Played(
    began=100.0,
    ended=160.0,
    bands=[
        PlayedBand("kill", (1,), "", 110.0, 115.0),
        PlayedBand("flip-bit", (2,), "orders-0/00000000000000000000.log at byte 7", 130.0, 132.0),
    ],
    spans=[Span("kill", 110.0, 115.0), Span("flip-bit", 130.0, 132.0)],
)
ACKED = [Acked(100 + number / 10, "own", "orders", 0, number, f"own/0/{number}", 3.0) for number in range(500)]
SILENCES = [Silence("kill", 1.5, 4.5), Silence("flip-bit", 0.1, 0.2)]


def result(*findings: Finding, failure: str | None = None) -> Result:
    played = Played(PLAYED.began, PLAYED.ended, PLAYED.bands, PLAYED.spans, failure)
    return Result(played, Evidence.of(ACKED), list(findings), SILENCES)


def picture(text: str) -> ET.Element:
    found = re.search(r"<svg.*?</svg>", text, re.DOTALL)
    assert found is not None
    return ET.fromstring(found[0])


def test_a_run_that_passed_says_so_and_shows_its_faults() -> None:
    text = page(HEADING, result())
    assert "Passed: 500 records acknowledged in 60 s, 2 faults in 2 rounds." in text
    assert all(name in text for name in CHECKS)
    labels = [each.text for each in picture(text).iter("text")]
    assert {"kill 1", "flip-bit 2"} <= set(labels)
    assert "<td>kill</td><td>1.5</td><td>4.5</td>" in text


def test_bands_stand_where_the_faults_were() -> None:
    bars = [each for each in picture(page(HEADING, result())).iter("rect") if each.get("opacity") is None]
    kill, flip = (float(each.get("x", "")) for each in bars)
    width = 1_100 - 70
    assert kill == pytest.approx(70 + width * 10 / 60, abs=0.1)
    assert flip == pytest.approx(70 + width * 30 / 60, abs=0.1)


def test_a_finding_is_named_and_its_text_is_no_markup() -> None:
    text = page(HEADING, result(Finding("lost", "<script>own/0/3 & more</script>")))
    assert 'class="failed"' in text
    assert "lost: &lt;script&gt;own/0/3 &amp; more&lt;/script&gt;" in text
    assert "<td>lost</td><td>1 times</td>" in text


def test_a_run_that_ended_early_shows_why() -> None:
    assert "<pre>node 2 ended by itself</pre>" in page(HEADING, result(failure="node 2 ended by itself"))


def test_what_the_probes_saw_is_counted_by_node() -> None:
    probed = [Probed(101, 2, "startup", "started", 101)]
    probed += [Probed(102 + i, 2, "readiness", "not ready" if i % 2 else "ready", 102) for i in range(3)]
    whole = result()
    text = page(HEADING, Result(whole.played, Evidence.of([*ACKED, *probed]), [], SILENCES))
    assert "<td>2</td><td>1</td><td>2</td><td>1</td><td>0</td>" in text
    assert "Probes" not in page(HEADING, whole)


def test_a_fault_that_was_impossible_is_named_with_the_reason() -> None:
    text = page(Heading(7, 3, "process", {"rolling-upgrade": "there is no tag"}), result())
    assert "<td>rolling-upgrade</td><td>there is no tag</td>" in text


def test_the_page_needs_no_other_file(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", HEADING, result())
    assert not re.findall(r"(?:src|href)=|url\(|@import", (tmp_path / "report.html").read_text(encoding="utf-8"))


def test_a_run_without_any_acknowledgement_has_a_page() -> None:
    empty = Result(Played(1.0, 2.0, failure="no quorum"), Evidence(), [], [])
    assert "Failed: 0 records acknowledged in 1 s" in page(HEADING, empty)
