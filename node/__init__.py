"""The process of a node: gRPC services, tasks, disks and clocks around the pure code of `storage` and `replication`."""

import tidelog as _tidelog  # noqa: F401 (sets gRPC's environment variables before gRPC is imported)
