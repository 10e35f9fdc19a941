"""A corpus or ready vectors → batches of passages with their impacts; the options of an index."""
