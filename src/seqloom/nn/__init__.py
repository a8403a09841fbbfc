"""Equations: one part, one file, one docstring that states it. Knows nobody."""

from seqloom.fused.dispatch import fused_enabled, plain
from seqloom.nn.attend import attend
from seqloom.nn.attention import CrossAttention, SelfAttention
from seqloom.nn.cells import GRU, LSTM, UGRNN, Cell, Gated, Vanilla
from seqloom.nn.chain import Chain, Residual
from seqloom.nn.char_embedding import CharEncoder, LetterConvolution, LetterRNN, Spelling
from seqloom.nn.convolution import ByteNet, Convolution, ConvS2S
from seqloom.nn.crf import CRF, Independent, TagHead
from seqloom.nn.deep_rnn import FastForward, LayerMix, TwoWays
from seqloom.nn.dropout import Dropout
from seqloom.nn.embedding import Embedding, Segmented
from seqloom.nn.experts import Experts
from seqloom.nn.feedforward import FFN, FeedForward, SwiGLU
from seqloom.nn.layer import Factory, Layer, Memory
from seqloom.nn.lora import LoRA, add_lora, merge_lora
from seqloom.nn.mixing import MixAll, Mixer, MixFeatures, MixTokens
from seqloom.nn.norm import LayerNorm, Norm, RMSNorm
from seqloom.nn.output import AdaptiveOutput, Output, OutputLayer, Transform
from seqloom.nn.pool import AttendPool, EndsPool, FirstPool, LastPool, MaxPool, MeanPool, Pool
from seqloom.nn.position import (
    ALiBi,
    Banded,
    Concatenated,
    Interpolated,
    Learned,
    NoPosition,
    Position,
    Rotary,
    RotaryScaling,
    Sinusoidal,
)
from seqloom.nn.quantize import quantize
from seqloom.nn.recurrent import RNN
from seqloom.nn.rnn_decoder import AttentiveRNN, Pooling, ThoughtRNN
from seqloom.nn.score import Additive, AttentionWeights, Bilinear, Dot, Raw, ScaledDot, Score, Softmax
from seqloom.nn.state import State, detach, select
from seqloom.nn.transformer import Block, Transformer

__all__ = [
    "CRF",
    "FFN",
    "GRU",
    "LSTM",
    "RNN",
    "UGRNN",
    "ALiBi",
    "AdaptiveOutput",
    "Additive",
    "AttendPool",
    "AttentionWeights",
    "AttentiveRNN",
    "Banded",
    "Bilinear",
    "Block",
    "ByteNet",
    "Cell",
    "Chain",
    "CharEncoder",
    "Concatenated",
    "ConvS2S",
    "Convolution",
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
    "Gated",
    "Independent",
    "Interpolated",
    "LastPool",
    "Layer",
    "LayerMix",
    "LayerNorm",
    "Learned",
    "LetterConvolution",
    "LetterRNN",
    "LoRA",
    "MaxPool",
    "MeanPool",
    "Memory",
    "MixAll",
    "MixFeatures",
    "MixTokens",
    "Mixer",
    "NoPosition",
    "Norm",
    "Output",
    "OutputLayer",
    "Pool",
    "Pooling",
    "Position",
    "RMSNorm",
    "Raw",
    "Residual",
    "Rotary",
    "RotaryScaling",
    "ScaledDot",
    "Score",
    "Segmented",
    "SelfAttention",
    "Sinusoidal",
    "Softmax",
    "Spelling",
    "State",
    "SwiGLU",
    "TagHead",
    "ThoughtRNN",
    "Transform",
    "Transformer",
    "TwoWays",
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
