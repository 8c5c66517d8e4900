"""Small files of a log directory beside its logs: Kafka's checkpoints, the directory's identity, durable offsets."""
