"""A provider for Longshore that repeats what it hears."""
