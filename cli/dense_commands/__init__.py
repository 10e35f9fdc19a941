"""The commands of `dense`, one module each."""
