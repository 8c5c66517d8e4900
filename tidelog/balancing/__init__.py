"""Where replicas belong: plans of moves, their file format, and their execution in waves."""
