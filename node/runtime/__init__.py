"""Services that every part of a node receives by its constructor: clock, executor, transport, memory budget, limits."""
