"""`tidelog log dump`: what lies in a log's files, and what is wrong with it."""
