"""Generated from Kafka's schemas by `make schemas`; never edited."""
