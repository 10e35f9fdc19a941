"""Commands of `sparta` that serve other programs or write to a server; one module per command."""
