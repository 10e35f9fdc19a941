"""Search over HTTP: `sparta serve`."""
