"""The transaction coordinator: the state machine of one partition of `__transaction_state`."""
