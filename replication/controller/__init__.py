"""The controller: the metadata records, the image they make, and who leads and is in sync by it."""
