"""Where requests reach a node: one package for each wire protocol."""
