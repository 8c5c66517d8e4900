"""The options of the Spark source and sink, checked and typed: strings in, frozen values out, no I/O."""
