"""The controller's driver, its clients, and this node's membership of the cluster."""
