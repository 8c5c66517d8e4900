"""The controller's driver and its client, cluster formation, and the node's membership."""
