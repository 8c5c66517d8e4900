"""Generated from proto/tidelog/protocol/v1 by `make proto`; never edited."""
