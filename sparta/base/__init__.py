"""What every part of the project shares; needs the standard library and NumPy only."""
