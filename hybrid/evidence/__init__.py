"""Maps KILT's provenance to passages and pages of an index, and measures rankings by evidence sets."""
