"""Record batches of v2, and what all formats share: varints, checksums, codecs."""
