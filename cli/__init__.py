"""Command lines: each command parses its arguments, calls a library function, and prints the result."""
