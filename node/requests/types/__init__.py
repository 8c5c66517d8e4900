"""Plain values: what a node is asked and what it answers, independent of any wire protocol."""
