"""Parts: each class holds one equation in its plain form, stated in its docstring. Parts are imported when first used."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from seqloom.lazy import lazy_names

if TYPE_CHECKING:
    from seqloom.fused.dispatch import fused_enabled, plain
    from seqloom.nn.attention import SelfAttention
    from seqloom.nn.attention_core import (
        Additive,
        AttentionWeights,
        Bilinear,
        Dot,
        Hard,
        Raw,
        ScaledDot,
        Score,
        Softmax,
        attend,
    )
    from seqloom.nn.basic import FFN, Dropout, FeedForward, LayerNorm, Norm, RMSNorm, SwiGLU
    from seqloom.nn.cells import GRU, LSTM, UGRNN, Cell, Gated, Vanilla
    from seqloom.nn.chain import Chain, Residual
    from seqloom.nn.char_embedding import CharCNN, CharEmbedding, CharEncoder, CharRNN
    from seqloom.nn.convolution import ByteNet, Convolution, ConvS2S
    from seqloom.nn.crf import CRF, SoftmaxHead, TagHead
    from seqloom.nn.cross_attention import CrossAttention
    from seqloom.nn.deep_rnn import FastForward, ScalarMix, SeparateBiRNN
    from seqloom.nn.embedding import (
        AdaptiveSoftmax,
        Embedding,
        HeadTransform,
        Output,
        OutputLayer,
        SegmentEmbedding,
    )
    from seqloom.nn.experts import Experts
    from seqloom.nn.frames import ConvolutionFront, Front, Pyramid, SoundEncoder, StackFrames
    from seqloom.nn.grid_position import GridPosition, LearnedGrid, NoGrid, SinusoidalGrid, TableGrid
    from seqloom.nn.int8 import quantize
    from seqloom.nn.layer import Factory, Layer, Memory, State, detach, select
    from seqloom.nn.lora import LoRA, add_lora, merge_lora
    from seqloom.nn.mixing import MixAll, Mixer, MixFeatures, MixTokens
    from seqloom.nn.pictures import ConvStem, Patches, PictureEncoder, PictureStem, ResNet
    from seqloom.nn.pointer import CoverageAttention, PointerOutput, PointerRNN
    from seqloom.nn.pool import AttentionPool, EndsPool, FirstPool, LastPool, MaxPool, MeanPool, Pool, SumPool
    from seqloom.nn.position import (
        ALiBi,
        Concatenated,
        Learned,
        LinearScaling,
        Llama3Scaling,
        NoPosition,
        Position,
        Rotary,
        RotaryScaling,
        Sinusoidal,
    )
    from seqloom.nn.recurrent import RNN
    from seqloom.nn.region_decoder import GatedAttention, RegionRNN
    from seqloom.nn.rnn_decoder import AttentiveRNN, GlobalAttention, RNNDecoder
    from seqloom.nn.source import SourceEncoder
    from seqloom.nn.transformer import Block, Transformer

__all__ = [
    "CRF",
    "FFN",
    "GRU",
    "LSTM",
    "RNN",
    "UGRNN",
    "ALiBi",
    "AdaptiveSoftmax",
    "Additive",
    "AttentionPool",
    "AttentionWeights",
    "AttentiveRNN",
    "Bilinear",
    "Block",
    "ByteNet",
    "Cell",
    "Chain",
    "CharCNN",
    "CharEmbedding",
    "CharEncoder",
    "CharRNN",
    "Concatenated",
    "ConvS2S",
    "ConvStem",
    "Convolution",
    "ConvolutionFront",
    "CoverageAttention",
    "CrossAttention",
    "Dot",
    "Dropout",
    "Embedding",
    "EndsPool",
    "Experts",
    "Factory",
    "FastForward",
    "FeedForward",
    "FirstPool",
    "Front",
    "Gated",
    "GatedAttention",
    "GlobalAttention",
    "GridPosition",
    "Hard",
    "HeadTransform",
    "LastPool",
    "Layer",
    "LayerNorm",
    "Learned",
    "LearnedGrid",
    "LinearScaling",
    "Llama3Scaling",
    "LoRA",
    "MaxPool",
    "MeanPool",
    "Memory",
    "MixAll",
    "MixFeatures",
    "MixTokens",
    "Mixer",
    "NoGrid",
    "NoPosition",
    "Norm",
    "Output",
    "OutputLayer",
    "Patches",
    "PictureEncoder",
    "PictureStem",
    "PointerOutput",
    "PointerRNN",
    "Pool",
    "Position",
    "Pyramid",
    "RMSNorm",
    "RNNDecoder",
    "Raw",
    "RegionRNN",
    "ResNet",
    "Residual",
    "Rotary",
    "RotaryScaling",
    "ScalarMix",
    "ScaledDot",
    "Score",
    "SegmentEmbedding",
    "SelfAttention",
    "SeparateBiRNN",
    "Sinusoidal",
    "SinusoidalGrid",
    "Softmax",
    "SoftmaxHead",
    "SoundEncoder",
    "SourceEncoder",
    "StackFrames",
    "State",
    "SumPool",
    "SwiGLU",
    "TableGrid",
    "TagHead",
    "Transformer",
    "Vanilla",
    "add_lora",
    "attend",
    "detach",
    "fused_enabled",
    "merge_lora",
    "plain",
    "quantize",
    "select",
]

OLD_NAMES = {
    "AdaptiveOutput": "AdaptiveSoftmax",
    "AttendPool": "AttentionPool",
    "Banded": "Llama3Scaling",
    "Forward": "FFN",
    "Independent": "SoftmaxHead",
    "Interpolated": "LinearScaling",
    "LayerMix": "ScalarMix",
    "LetterConvolution": "CharCNN",
    "LetterRNN": "CharRNN",
    "Letters": "CharEncoder",
    "Make": "Factory",
    "Paths": "TagHead",
    "Pooling": "GlobalAttention",
    "Readout": "OutputLayer",
    "Segmented": "SegmentEmbedding",
    "Spelling": "CharEmbedding",
    "Stretch": "RotaryScaling",
    "ThoughtRNN": "RNNDecoder",
    "Transform": "HeadTransform",
    "TwoWays": "SeparateBiRNN",
    "Weights": "AttentionWeights",
    "adapt": "add_lora",
    "fast": "fused_enabled",
    "merge": "merge_lora",
}

NAMES, _present, __dir__ = lazy_names(__name__, __file__)
# The types of a config.
PARTS = {
    name: place for name, place in NAMES.items() if name[0].isupper() and name not in ("Factory", "State")
}


def __getattr__(name: str) -> Any:
    if name in OLD_NAMES:
        message = f"seqloom.nn.{name} is now called seqloom.nn.{OLD_NAMES[name]}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
    return _present(OLD_NAMES.get(name, name))
