"""The disk: the `Files` protocol, its implementation for the operating system, guarded mapped memory, and executors."""
