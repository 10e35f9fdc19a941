"""The commands of `sparta` that other programs talk to, one module each."""
