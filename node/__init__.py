"""The process of a node: gRPC services, tasks, disks and clocks around the pure code of `storage` and `replication`."""
