"""What `tidelog.testing` is made of: clusters of processes with faults, a node inside a process, and the simulator."""
