"""Which values of a model are the outputs of its layers."""

from __future__ import annotations

from torch import nn

from seqloom.nn.convolution import ByteNetBlock, GatedBlock
from seqloom.nn.deep_rnn import SeparateBiRNN
from seqloom.nn.embedding import Embedding
from seqloom.nn.mixing import MixerBlock
from seqloom.nn.recurrent import RNN, UnrolledCell
from seqloom.nn.transformer import Block, Transformer

LAYERS = (Embedding, Block, MixerBlock, ByteNetBlock, GatedBlock, UnrolledCell)


def layer_names(model: nn.Module) -> list[str]:
    """The outputs of layers: the embedding, the input of a Transformer, then each block, or each layer of an RNN with both directions.

    A model that reads in one direction does not compute those of both, and the other way round.
    """
    names: list[str] = []
    inside: set[int] = set()  # cells whose layer is named
    for path, part in model.named_modules():
        if isinstance(part, Transformer):
            names.append(f"{path}.input")
        elif isinstance(part, RNN):
            names += [f"{path}.output.{layer}" for layer in range(part.depth)]
            inside |= {id(cell) for cell in part.modules()}
        elif isinstance(part, SeparateBiRNN):
            names += [f"{path}.output.{level}" for level in range(1, part.depth)]
        elif isinstance(part, LAYERS) and id(part) not in inside:
            names.append(path)
    return names


def outermost(names: list[str]) -> list[str]:
    """Without the layers of one direction where those of both are there too."""
    owners = {name.rpartition(".output.")[0] for name in names if ".output." in name}
    return [
        name
        for name in names
        if not any(name.startswith(f"{one}.") and not name.startswith(f"{one}.output.") for one in owners)
    ]
