"""Builds the course's notebooks from their source text and grades what comes back."""
