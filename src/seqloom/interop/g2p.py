"""A GRU encoder-decoder from letters to phonemes, as arrays of numpy: one layer each way, torch's gates, nothing pickled.

Letters and phonemes stand in one table of ours, letters small and phonemes in capitals, so a letter is never written and a phoneme never read.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

from seqloom.interop.import_run import ForeignCheckpoint
from seqloom.text import tokenizer_file as tokenizers
from seqloom.text.special_tokens import BOS, EOS, PAD, SPECIALS, UNK

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOWELS = ["AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"]
CONSONANTS = [
    "B",
    "CH",
    "D",
    "DH",
    "F",
    "G",
    "HH",
    "JH",
    "K",
    "L",
    "M",
    "N",
    "NG",
    "P",
    "R",
    "S",
    "SH",
    "T",
    "TH",
    "V",
    "W",
    "Y",
    "Z",
    "ZH",
]
PHONEMES = sorted(
    [*(f"{vowel}{stress}" for vowel in VOWELS for stress in "012"), "UW", *CONSONANTS]
)  # the dictionary has one UW without stress
SOURCE = {PAD: 0, UNK: 1, EOS: 2}  # our id → row of its letters
TARGET = {PAD: 0, UNK: 1, BOS: 2, EOS: 3}
KEYS = ("emb", "w_ih", "w_hh", "b_ih", "b_hh")
MOST = 1 << 30  # bytes
IMPOSSIBLE_LOGIT = -1e9  # the logit of what the model has no row for


def read(path: Path, tokenizer: Path | None = None) -> ForeignCheckpoint:
    """The checkpoint at `path`, whose tokenizer is fixed."""
    if tokenizer is not None:
        raise ValueError(
            f"{path}: a checkpoint of letters and phonemes has its own tokenizer; leave --tokenizer out"
        )
    arrays = load(path)
    dim = arrays["enc_w_hh"].shape[-1] if arrays["enc_w_hh"].ndim == 2 else 0
    size = arrays["enc_emb"].shape[-1] if arrays["enc_emb"].ndim == 2 else 0
    letters, phonemes = len(LETTERS) + 3, len(PHONEMES) + 4
    wanted = {"fc_w": (phonemes, dim), "fc_b": (phonemes,)}
    for side, rows in (("enc", letters), ("dec", phonemes)):
        shapes = ((rows, size), (3 * dim, size), (3 * dim, dim), (3 * dim,), (3 * dim,))
        wanted |= {f"{side}_{key}": shape for key, shape in zip(KEYS, shapes, strict=True)}
    for name, shape in wanted.items():
        if arrays[name].shape != shape or not dim:
            raise ValueError(
                f"{path}: {name} has shape {arrays[name].shape} where {shape} is expected; this is another model"
            )
    cell = {"type": "GRU"}
    tree = {
        "type": "Seq2Seq",
        "dim": size,
        "shared": False,
        "tied": False,
        "encoder": {"type": "RNN", "dim": dim, "cell": cell},
        "decoder": {"type": "RNNDecoder", "dim": dim, "cell": cell},
    }
    return ForeignCheckpoint(
        "letters to phonemes", tree, build_tokenizer(path), lambda model: weights(arrays, model)
    )


def load(path: Path) -> dict[str, np.ndarray]:
    """The arrays by name; only numbers, and none too large."""
    names = [f"{side}_{key}" for side in ("enc", "dec") for key in KEYS] + ["fc_w", "fc_b"]
    try:
        with zipfile.ZipFile(path) as packed:
            if sum(one.file_size for one in packed.infolist()) > MOST:
                raise ValueError("its arrays are too large")
        with np.load(path, allow_pickle=False) as opened:
            if missing := [name for name in names if name not in opened.files]:
                raise ValueError(f"it has no {missing[0]}")
            found = {name: opened[name] for name in names}
        for name, array in found.items():
            if array.dtype.kind != "f" or not (np.abs(array) < np.finfo(np.float32).max).all():
                raise ValueError(f"{name} holds more than finite numbers")
        return found
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        MemoryError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(
            f"{path}: not a checkpoint of letters to phonemes ({str(error)[:120]}); nothing else is read from .npz files"
        ) from None


def build_tokenizer(path: Path) -> Tokenizer:
    """Letters and phonemes as words of one vocabulary; decoding puts spaces between."""
    words = [*SPECIALS, *LETTERS, *PHONEMES]
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"[A-Z]+[0-2]?|."), "isolated")]
    )
    return tokenizers.parse(json.dumps(json.loads(made.to_str())), path)


def weights(arrays: dict[str, np.ndarray], model: nn.Module) -> dict[str, Tensor]:
    """Their rows in our places, and the two biases of a gate as one."""
    given = {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}
    first = len(SPECIALS)
    rows = {
        "enc": SOURCE | {first + index: 3 + index for index in range(len(LETTERS))},
        "dec": TARGET | {first + len(LETTERS) + index: 4 + index for index in range(len(PHONEMES))},
    }
    total = first + len(LETTERS) + len(PHONEMES)

    def spread(values: Tensor, side: str, fill: float = 0.0) -> Tensor:
        made = torch.full((total, *values.shape[1:]), fill)
        made[list(rows[side])] = values[list(rows[side].values())]
        return made

    found = {
        "embedding.table": spread(given["dec_emb"], "dec"),
        "source_embedding.table": spread(given["enc_emb"], "enc"),
        "output.table": spread(given["fc_w"], "dec"),
        "output.bias": spread(given["fc_b"], "dec", IMPOSSIBLE_LOGIT),
    }
    for side, place in (("enc", "encoder.layers.0.0.cell"), ("dec", "decoder.layers.0.cell")):
        gates = (
            2 * given[f"{side}_w_hh"].shape[1]
        )  # r and z, whose biases add up; n keeps the hidden one inside the reset
        later = given[f"{side}_b_hh"].clone()
        later[gates:] = 0
        found |= {
            f"{place}.input": given[f"{side}_w_ih"],
            f"{place}.hidden": given[f"{side}_w_hh"],
            f"{place}.bias": given[f"{side}_b_ih"] + later,
            f"{place}.hidden_bias": given[f"{side}_b_hh"][gates:],
        }
    return found
