"""What every part of a node takes by its constructor: clock, executor, transport, memory budget, limits."""
