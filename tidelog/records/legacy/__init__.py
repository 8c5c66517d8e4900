"""Messages of formats v0 and v1: message sets, wrappers, and their codecs."""
