"""The index that a service answers from: its snapshots, batches of searches, writes."""
