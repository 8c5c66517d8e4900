"""The client: producer, consumer and admin, and the state machines inside them."""
