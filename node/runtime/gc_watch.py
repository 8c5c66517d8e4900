"""How long Python's garbage collector stops the process: nothing else runs meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Final

GENERATIONS: Final = 3


class GcWatch:
    """Measures the collections of this process."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """now_s: monotonic time in seconds."""
        self._now_s = now_s
        self._began_s = 0.0
        self.collections = [0] * GENERATIONS
        """Collections by generation."""
        self.seconds = [0.0] * GENERATIONS
        """Their time together."""
        self.objects = [0] * GENERATIONS
        """Objects that they freed."""
        self.longest_s = 0.0
        """The longest one since the start."""

    def start(self) -> None:
        """Measure from now on."""
        gc.callbacks.append(self._changed)

    def stop(self) -> None:
        """Measure no more."""
        if self._changed in gc.callbacks:
            gc.callbacks.remove(self._changed)

    def _changed(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_s = self._now_s()
            return
        generation, took_s = info["generation"], self._now_s() - self._began_s
        self.collections[generation] += 1
        self.seconds[generation] += took_s
        self.objects[generation] += info["collected"]
        self.longest_s = max(self.longest_s, took_s)
