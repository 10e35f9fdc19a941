"""The commands of `sparta`, one module each."""
