"""Document encoders: configuration, weights, pruning, quantization, and the query side."""
