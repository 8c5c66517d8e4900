"""What each request passes between its listener and its handler, whatever its protocol."""
