"""Equations: one part, one file, one docstring that states it. Knows nobody."""

from seqloom.nn.adaptive import AdaptiveOutput
from seqloom.nn.attention import CrossAttention, Pooling, SelfAttention
from seqloom.nn.attentive import AttentiveRNN
from seqloom.nn.cells import GRU, LSTM, UGRNN, Cell, Gated, Vanilla
from seqloom.nn.chain import Chain
from seqloom.nn.convolution import ByteNet, Convolution, ConvS2S
from seqloom.nn.crf import CRF, Independent, Paths
from seqloom.nn.deep import FastForward, Residual
from seqloom.nn.dropout import Dropout
from seqloom.nn.embedding import Embedding, Output, Readout, Segmented, Transform
from seqloom.nn.experts import Experts
from seqloom.nn.fast import fast, plain
from seqloom.nn.feedforward import FeedForward, Forward, SwiGLU
from seqloom.nn.layer import Layer, Make, Memory
from seqloom.nn.layermix import LayerMix
from seqloom.nn.lora import LoRA, adapt, merge
from seqloom.nn.mixing import MixAll, Mixer, MixFeatures, MixTokens
from seqloom.nn.norm import LayerNorm, Norm, RMSNorm
from seqloom.nn.pool import AttendPool, EndsPool, FirstPool, LastPool, MaxPool, MeanPool, Pool
from seqloom.nn.position import ALiBi, Concatenated, Learned, NoPosition, Position, Rotary, Sinusoidal
from seqloom.nn.quantize import quantize
from seqloom.nn.recurrent import RNN
from seqloom.nn.score import Additive, Bilinear, Dot, ScaledDot, Score
from seqloom.nn.spelling import LetterConvolution, LetterRNN, Letters, Spelling
from seqloom.nn.stack import Block, Transformer
from seqloom.nn.state import State, detach, select
from seqloom.nn.stretch import Banded, Interpolated, Stretch
from seqloom.nn.thought import ThoughtRNN
from seqloom.nn.twoways import TwoWays
from seqloom.nn.view import attend
from seqloom.nn.weights import Raw, Softmax, Weights

__all__ = [
    "CRF",
    "GRU",
    "LSTM",
    "RNN",
    "UGRNN",
    "ALiBi",
    "AdaptiveOutput",
    "Additive",
    "AttendPool",
    "AttentiveRNN",
    "Banded",
    "Bilinear",
    "Block",
    "ByteNet",
    "Cell",
    "Chain",
    "Concatenated",
    "ConvS2S",
    "Convolution",
    "CrossAttention",
    "Dot",
    "Dropout",
    "Embedding",
    "EndsPool",
    "Experts",
    "FastForward",
    "FeedForward",
    "FirstPool",
    "Forward",
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
    "Letters",
    "LoRA",
    "Make",
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
    "Paths",
    "Pool",
    "Pooling",
    "Position",
    "RMSNorm",
    "Raw",
    "Readout",
    "Residual",
    "Rotary",
    "ScaledDot",
    "Score",
    "Segmented",
    "SelfAttention",
    "Sinusoidal",
    "Softmax",
    "Spelling",
    "State",
    "Stretch",
    "SwiGLU",
    "ThoughtRNN",
    "Transform",
    "Transformer",
    "TwoWays",
    "Vanilla",
    "Weights",
    "adapt",
    "attend",
    "detach",
    "fast",
    "merge",
    "plain",
    "quantize",
    "select",
]
