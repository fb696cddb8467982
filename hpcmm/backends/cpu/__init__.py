"""The host's CPU."""
