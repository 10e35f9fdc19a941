"""Command lines: parse the arguments, call one function, print what it returns."""
