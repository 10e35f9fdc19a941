"""The commands of `hybrid`, one module each."""
