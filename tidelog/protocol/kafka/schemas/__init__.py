"""Kafka's message schemas, and the generator of `tidelog.protocol.kafka.messages`. Not part of the wheel."""
