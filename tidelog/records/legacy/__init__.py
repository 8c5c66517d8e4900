"""Messages of v0 and v1: message sets, wrappers, and the codecs that only these use."""
