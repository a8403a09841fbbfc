"""Metrics: every number has a signature that records how it was measured. Imports no other package."""
