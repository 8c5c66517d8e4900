"""The small files beside the logs of a log directory: Kafka's checkpoints, its identity, and what it held."""
