"""Messages of Apache Kafka: codecs that are generated from Kafka's schemas, and the functions that the generated code
calls."""
