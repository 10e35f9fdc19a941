"""The live index of a service: snapshots, batches of searches, writes."""
