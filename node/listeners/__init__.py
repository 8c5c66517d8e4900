"""Listeners of a node: one package for each wire protocol."""
