"""Commands for the first steps: check the machine, try the example."""
