"""SPARTA models: configuration, weights, pruning, quantization, and encoding of passages and queries."""
