"""Parts of the console's pages: values of records, charts, figures, and that text never becomes markup."""

from __future__ import annotations

import json
import string
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidelog.console.charts import amount, chart
from tidelog.console.html import Html, address, element, markup, table
from tidelog.console.layout import hidden
from tidelog.console.live_figures import AFTER_MS, EVERY_MS, KEPT, LiveFigures, LiveSeries, NodeCounters, percentile
from tidelog.console.page_exchange import EXACT, PageRequest
from tidelog.console.record_values import hex_lines, json_lines, shown
from tidelog.errors import InvalidRequest


@given(some.text())
def test_any_text_is_read_back_and_is_no_markup(text: str) -> None:
    made = element("p", text, title=text)
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append(tag)
            assert [key for key, _ in attrs] == ["title"]

    Reader().feed(made)
    assert found == ["p"]
    if text.isprintable():
        assert unescape(made.rpartition("</p>")[0].rpartition(">")[2]) == text


@given(some.text(min_size=1))
def test_a_hidden_field_comes_back_as_it_was_through_what_html_and_browsers_do_to_values(text: str) -> None:
    """An id may begin with a space, and have line breaks and control characters: another id is another group."""
    form: dict[str, str] = {}

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            given = {key: value or "" for key, value in attrs}
            # A browser sends every line break as CR LF, and has no NUL.
            lines = given["value"].replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
            form[given["name"]] = lines.replace("\0", "\ufffd")

    for field in hidden([("id", text)]):
        Reader().feed(field)
    assert PageRequest("/group/reset", form=form).exact("id") == text


def test_a_hidden_field_that_was_tampered_with_is_refused() -> None:
    for value in ("\u00fc", "_w", "a"):
        with pytest.raises(InvalidRequest, match="malformed"):
            PageRequest("/group/reset", form={EXACT + "id": value}).exact("id")


def test_markup_is_not_escaped_twice_and_absent_attributes_are_left_out() -> None:
    inner = element("b", "a & b")
    assert markup(["<", inner, None, 3]) == "&lt;<b>a &amp; b</b>3"
    assert element("input", required=True, disabled=False, value=None, class_="x") == '<input required class="x">'
    assert isinstance(inner, Html)
    assert address("/topic", name="a/b?c&d", partition=None, from_="x y") == "/topic?name=a%2Fb%3Fc%26d&from=x+y"


def test_a_table_has_headings_of_rows_and_columns_and_says_when_it_is_empty() -> None:
    made = table("Nodes", ("Node", "Leads"), [(0, 5)])
    assert '<th scope="row">0</th><td class="number">5</td>' in made
    assert "<caption>Nodes</caption>" in made
    assert 'aria-label="Nodes"' in made
    assert "nothing here" in table("Nodes", ("Node",), [], empty="nothing here")


VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text(string.printable),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=5), inner, max_size=4),
)


@given(VALUES)
def test_indented_json_is_the_same_document(value: object) -> None:
    text = json.dumps([value])
    lines = json_lines(text)
    assert lines is not None
    assert json.loads("\n".join(lines)) == [value]


def test_json_keeps_its_numbers_and_repeated_keys() -> None:
    assert json_lines('{"a":1.10,"a":12345678901234567890123,"b":[],"c":{"d":["x,]"]}}') == [
        "{",
        '  "a": 1.10,',
        '  "a": 12345678901234567890123,',
        '  "b": [],',
        '  "c": {',
        '    "d": [',
        '      "x,]"',
        "    ]",
        "  }",
        "}",
    ]


@pytest.mark.parametrize("text", ["", "5", '"text"', "{", "[1,]", "[" * 100_000, "{'a': 1}", "plain"])
def test_what_is_no_object_and_no_array_is_not_json(text: str) -> None:
    assert json_lines(text) is None


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "null"),
        (b"", "empty"),
        (b'{"a": 1}', 'class="json"'),
        (b"plain text", 'class="text"'),
        ("Grüße\nüber zwei".encode(), "Grüße\nüber zwei"),
        (b"\x00\x01", 'class="hex"'),
        (b"\xff\xfe", "ff fe"),
        ("hidden \u202e order".encode(), 'class="hex"'),
        (b"\x00" * 20_000, "and 18976 more bytes"),
    ],
)
def test_a_value_is_shown_as_what_it_is(data: bytes | None, says: str) -> None:
    assert says in shown(data)


@pytest.mark.parametrize(
    ("data", "length", "says"),
    [
        (b"x" * 16_384, 20_000, "the first 16384 of 20000 bytes"),
        (("x" + "ü" * 10_000).encode()[:16_384], 20_001, "the first 16384 of 20001 bytes"),
        (b'{"a": 1}', 20_000, 'class="text"'),
        (b"\x00" * 16_384, 20_000, "and 18976 more bytes"),
    ],
)
def test_the_beginning_of_a_value_says_how_long_the_whole_is(data: bytes, length: int, says: str) -> None:
    assert says in shown(data, length)


def test_json_that_would_become_mostly_spaces_is_shown_as_it_was_written() -> None:
    hostile = ("[" * 25 + "1," * 5_000 + "1" + "]" * 25).encode()
    assert len(shown(hostile)) < 3 * len(hostile)


@given(some.binary(max_size=3_000))
def test_any_value_has_a_form(data: bytes) -> None:
    assert shown(data)


def test_hexadecimal_lines_have_position_bytes_and_characters() -> None:
    assert hex_lines(b"Hello, world!\n\x00\xffmore") == [
        "0000  48 65 6c 6c 6f 2c 20 77 6f 72 6c 64 21 0a 00 ff  Hello, world!...",
        "0010  6d 6f 72 65                                      more",
    ]


def test_a_chart_says_in_words_what_its_line_shows() -> None:
    made = chart(LiveSeries("Bytes in", "bytes/s", (1_500.0, None, 3_000_000.0)))
    assert 'aria-label="Bytes in: now 3 M, lowest 1.5 k, highest 3 M bytes/s"' in made
    assert made.count("<polyline") == 2, "a gap is no line"
    assert "nothing measured yet" in chart(LiveSeries("Bytes in", "bytes/s", ()))
    assert "nothing measured yet" in chart(LiveSeries("Bytes in", "bytes/s", (None,)))


def test_amounts_have_three_digits() -> None:
    assert [amount(each) for each in (0, 1, 12.345, 1_234, 1.5e6, 2e9, None)] == [
        "0",
        "1",
        "12.3",
        "1.23 k",
        "1.5 M",
        "2 G",
        "none",
    ]


def test_a_percentile_is_the_bound_below_which_the_share_is() -> None:
    bounds = (1.0, 5.0, 10.0)
    assert percentile((0, 0, 0, 0), bounds, 0.5) is None
    assert percentile((50, 49, 1, 0), bounds, 0.5) == 1.0
    assert percentile((50, 49, 1, 0), bounds, 0.99) == 5.0
    assert percentile((0, 0, 0, 3), bounds, 0.5) == 10.0, "above all bounds"


def test_a_node_is_sampled_while_somebody_looks_and_ten_minutes_longer() -> None:
    now, reads = 0, 0

    def read() -> NodeCounters:
        nonlocal reads
        reads += 1
        return NodeCounters(now, records_in=now // 10, produce_times=(now, 0), fetch_times=(0, 0))

    live = LiveFigures(read, (1.0,))
    live.sample()
    assert (reads, live.is_watched) == (0, False), "nobody has looked"
    live.look()
    assert live.rates()[0].values == ()
    for _ in range(3):
        now += EVERY_MS
        live.sample()
    assert live.rates()[0].values == (100.0,) * 3
    assert live.latencies()[0].values == (1.0,) * 3
    assert live.latencies()[2].values == (None,) * 3
    while live.is_watched:
        now += EVERY_MS
        live.sample()
    assert now - 3 * EVERY_MS <= AFTER_MS + 4 * EVERY_MS
    assert len(live.rates()[0].values) == KEPT - 1
    live.look()
    assert live.rates()[0].values == (), "what lies hours back is not joined to now"
