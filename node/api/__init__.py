"""Requests and answers of a node as plain values, independent of any wire protocol."""
