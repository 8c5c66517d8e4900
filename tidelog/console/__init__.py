"""The pages of the web console: what a person sees of a cluster, and changes.

Everything on a page comes from the clients of this package (`tidelog.Admin`), through a transport that the node hands
in. Nothing here opens a socket, knows a password or decides what a visitor may do.
"""
