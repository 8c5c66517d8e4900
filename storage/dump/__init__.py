"""`tidelog log dump`: shows and checks the files of a log."""
