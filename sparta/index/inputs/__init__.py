"""A corpus or ready vectors → batches of passages with their impacts, and the options of this."""
