"""Text to ids: readers, record fields, tokenizers, labels
and the memory-mapped token store. Does not import torch."""
