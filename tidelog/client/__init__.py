"""The client: producer, consumer and admin, and their state machines."""
