"""The tables of the papers, each measured by one function."""
