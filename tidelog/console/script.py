"""The one script of the console: it renews the charts. Every page works without it."""

from __future__ import annotations

from typing import Final

SCRIPT: Final = """"use strict";
const live = document.getElementById("live");
const pause = document.getElementById("pause");
if (live && pause) {
  let paused = false;
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
  });
  const renew = async () => {
    if (paused || document.hidden) {
      return;
    }
    try {
      const answer = await fetch(live.dataset.from, { headers: { "Accept": "text/html" } });
      if (answer.redirected) {
        location.reload(); // the session has ended
      } else if (answer.ok && !paused) {
        live.innerHTML = await answer.text();
      }
    } catch {
      // The node does not answer: the charts stand still until it does.
    }
  };
  setInterval(renew, Number(live.dataset.every));
}
"""
