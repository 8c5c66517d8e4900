"""The disk: the `Files` protocol, the operating system behind it, guarded mapped memory, and work on other threads."""
