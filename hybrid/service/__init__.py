"""The service over HTTP, and its page."""
