"""Record batches of format v2, and what all formats share: varints, checksums, codecs."""
