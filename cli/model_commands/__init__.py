"""Commands of `sparta` that train, measure and apply models; one module per command."""
