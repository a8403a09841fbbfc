"""What a trained model does inside: its named values, attention, gates, gradients, and what moves its answers. Names are imported when
first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.lazy import lazy_names

__all__ = [
    "activations",
    "alignment",
    "attention",
    "beam",
    "contexts",
    "coreference",
    "gates",
    "geometry",
    "gradients",
    "heads",
    "patch",
    "picture",
    "read",
    "similarity",
    "sound",
    "tokens",
    "trace",
    "watched_gradients",
]

if TYPE_CHECKING:
    from seqloom.inference.alignment import align as alignment
    from seqloom.inference.caption_attention import caption_attention as picture
    from seqloom.inspect.attention_maps import attention
    from seqloom.inspect.coreference_probe import coreference
    from seqloom.inspect.gate_values import gates
    from seqloom.inspect.gradient_norms import gradients, watched_gradients
    from seqloom.inspect.head_values import heads
    from seqloom.inspect.layer_vectors import geometry, similarity
    from seqloom.inspect.named_values import activations
    from seqloom.inspect.patching import patch
    from seqloom.inspect.reading import read
    from seqloom.inspect.search_tree import beam
    from seqloom.inspect.sound_alignment import sound
    from seqloom.inspect.token_list import tokens
    from seqloom.inspect.trace_values import trace
    from seqloom.inspect.word_contexts import contexts

_NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)
