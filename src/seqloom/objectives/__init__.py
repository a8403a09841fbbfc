"""What is learnt: one function for each objective."""

from seqloom.objectives.likelihood import next_token, translation
from seqloom.objectives.reward import mixed

__all__ = ["mixed", "next_token", "translation"]
