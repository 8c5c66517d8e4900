"""Messages of Apache Kafka: codecs that are generated from Kafka's schemas, and what the generated code calls."""
