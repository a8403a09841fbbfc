"""Helpers that several tests share: cases, references, small data."""
