"""What model families share and needs torch: training loop, checkpoints, batched encoding."""
