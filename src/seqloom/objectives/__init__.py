"""What is learnt: one function for each objective."""

from seqloom.objectives.likelihood import next_token, translation

__all__ = ["next_token", "translation"]
