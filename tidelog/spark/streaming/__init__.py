"""The streaming source: offsets of a checkpoint, rate, data loss and identity as pure modules; the reader on top."""
