"""Commands of `hybrid`; one module per command."""
