"""What a node is asked, and how it answers."""
