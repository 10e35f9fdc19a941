"""Neural parts that all model families share (needs torch): checkpoints and batched encoding."""
