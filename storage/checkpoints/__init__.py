"""Small files of a log directory beside its logs: Kafka's checkpoints, the identity of the directory, durable
offsets."""
