"""Charts of what this node does, renewed while they are looked at."""

from __future__ import annotations

from tidelog.console.charts import chart
from tidelog.console.html import Html, address, element, link
from tidelog.console.live_figures import EVERY_MS
from tidelog.console.page_call import PageCall, Shown

PART_PATH = "/live/charts"
"""The charts alone: the script asks for them, and puts them in the place of the former ones."""


async def live(call: PageCall) -> Shown:
    """The page. Without the script, its link asks for it again."""
    return Shown(
        "Live",
        [
            element("p", "What the node that shows this page does; each node has a page of its own."),
            element(
                "p",
                element("button", "Pause", type="button", id="pause", aria_pressed="false", hidden=True),
                " ",
                link(address("/live"), "Show the values of now"),
            ),
            element("div", charts(call), id="live", data_every=EVERY_MS, data_from=PART_PATH),
        ],
    )


def charts(call: PageCall) -> Html:
    """All charts."""
    call.live.look()
    seconds = call.live.span_ms // 1_000
    span = f"the last {seconds} seconds" if seconds else "from now on"
    return Html(
        element("h2", f"Rates, {span}")
        + element("div", [chart(each) for each in call.live.rates()], class_="charts")
        + element("h2", f"Latencies, {span}")
        + element("div", [chart(each) for each in call.live.latencies()], class_="charts")
    )
