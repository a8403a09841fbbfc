"""Strings and ids: tokenizers, readers and the token store. Knows nobody, and no torch."""
