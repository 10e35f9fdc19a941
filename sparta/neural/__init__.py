"""What model families share: training loop, checkpoints, batched encoding. The only shared code that needs torch."""
