"""Reads a GRU encoder-decoder from letters to phonemes, stored as numpy arrays with torch's gate order.

Letters (lower case) and phonemes (capitals) share one vocabulary of ours: the source table has no rows for
phonemes and the output none for letters. Pickled arrays are not read.
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

from seqloom.errors import DataError
from seqloom.interop.import_run import ForeignCheckpoint
from seqloom.text import tokenizer_file as tokenizers
from seqloom.text.tokenizer import BOS, EOS, PAD, SPECIALS, UNK

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
STRESSED = [f"{vowel}{stress}" for vowel in VOWELS for stress in "012"]
PHONEMES = sorted([*STRESSED, "UW", *CONSONANTS])  # the dictionary has one UW without stress
SOURCE_ROWS = {PAD: 0, UNK: 1, EOS: 2}  # our id → row of the file's letter table
TARGET_ROWS = {PAD: 0, UNK: 1, BOS: 2, EOS: 3}  # our id → row of the file's phoneme table
KEYS = ("emb", "w_ih", "w_hh", "b_ih", "b_hh")
MAX_BYTES = 1 << 30
# what zipfile and numpy raise for damaged files
DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
IMPOSSIBLE_LOGIT = -1e9  # the logit of a token for which the file has no row


def read(path: Path, tokenizer: Path | None = None) -> ForeignCheckpoint:
    """Reads the checkpoint at `path`; its tokenizer is fixed."""
    if tokenizer is not None:
        raise DataError(
            f"{path}: a checkpoint of letters to phonemes has its own tokenizer; drop --tokenizer"
        )
    arrays = load(path)
    dim = arrays["enc_w_hh"].shape[-1] if arrays["enc_w_hh"].ndim == 2 else 0
    embedding_dim = arrays["enc_emb"].shape[-1] if arrays["enc_emb"].ndim == 2 else 0
    letter_rows = len(LETTERS) + len(SOURCE_ROWS)
    phoneme_rows = len(PHONEMES) + len(TARGET_ROWS)
    expected: dict[str, tuple[int, ...]] = {"fc_w": (phoneme_rows, dim), "fc_b": (phoneme_rows,)}
    for side, rows in (("enc", letter_rows), ("dec", phoneme_rows)):
        shapes = ((rows, embedding_dim), (3 * dim, embedding_dim), (3 * dim, dim), (3 * dim,), (3 * dim,))
        expected |= {f"{side}_{key}": shape for key, shape in zip(KEYS, shapes, strict=True)}
    for name, shape in expected.items():
        if arrays[name].shape != shape or not dim:
            raise DataError(
                f"{path}: {name} has shape {arrays[name].shape}, not {shape}; this is another model"
            )
    cell = {"type": "GRU"}
    tree = {
        "type": "Seq2Seq",
        "dim": embedding_dim,
        "shared": False,
        "tied": False,
        "encoder": {"type": "RNN", "dim": dim, "cell": cell},
        "decoder": {"type": "RNNDecoder", "dim": dim, "cell": cell},
    }
    return ForeignCheckpoint(
        "letters to phonemes", tree, build_tokenizer(path), lambda model: weights(arrays, model)
    )


def load(path: Path) -> dict[str, np.ndarray]:
    """The arrays by name; finite floats only, of limited size."""
    names = [f"{side}_{key}" for side in ("enc", "dec") for key in KEYS] + ["fc_w", "fc_b"]
    try:
        with zipfile.ZipFile(path) as packed:
            if sum(entry.file_size for entry in packed.infolist()) > MAX_BYTES:
                raise DataError("its arrays are too large")
        with np.load(path, allow_pickle=False) as opened:
            if missing := [name for name in names if name not in opened.files]:
                raise DataError(f"it has no {missing[0]}")
            arrays = {name: opened[name] for name in names}
        for name, array in arrays.items():
            if array.dtype.kind != "f" or not (np.abs(array) < np.finfo(np.float32).max).all():
                raise DataError(f"{name} does not hold finite numbers only")
        return arrays
    except DAMAGE as error:
        raise DataError(
            f"{path}: not a checkpoint of letters to phonemes ({str(error)[:120]}); "
            "nothing else is read from .npz files"
        ) from None


def build_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer whose words are letters and phonemes; decoding puts spaces between them."""
    words = [*SPECIALS, *LETTERS, *PHONEMES]
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"[A-Z]+[0-2]?|."), "isolated")]
    )
    return tokenizers.parse(json.dumps(json.loads(tokenizer.to_str())), path)


def weights(arrays: dict[str, np.ndarray], model: nn.Module) -> dict[str, Tensor]:
    """Our weights: the file's rows at our ids, and the two biases of a gate added into one."""
    tensors = {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}
    first_letter = len(SPECIALS)
    first_phoneme = first_letter + len(LETTERS)
    vocabulary = first_phoneme + len(PHONEMES)
    letter_rows = {first_letter + index: len(SOURCE_ROWS) + index for index in range(len(LETTERS))}
    phoneme_rows = {first_phoneme + index: len(TARGET_ROWS) + index for index in range(len(PHONEMES))}
    rows = {"enc": SOURCE_ROWS | letter_rows, "dec": TARGET_ROWS | phoneme_rows}

    def by_our_ids(values: Tensor, side: str, default: float = 0.0) -> Tensor:
        table = torch.full((vocabulary, *values.shape[1:]), default)
        table[list(rows[side])] = values[list(rows[side].values())]
        return table

    ours = {
        "embedding.table": by_our_ids(tensors["dec_emb"], "dec"),
        "source_embedding.table": by_our_ids(tensors["enc_emb"], "enc"),
        "output.table": by_our_ids(tensors["fc_w"], "dec"),
        "output.bias": by_our_ids(tensors["fc_b"], "dec", IMPOSSIBLE_LOGIT),
    }
    for side, cell in (("enc", "encoder.layers.0.0.cell"), ("dec", "decoder.layers.0.cell")):
        # the biases of r and z add up; n keeps the hidden one inside the reset
        reset_and_update = 2 * tensors[f"{side}_w_hh"].shape[1]
        hidden_bias = tensors[f"{side}_b_hh"].clone()
        hidden_bias[reset_and_update:] = 0
        ours |= {
            f"{cell}.input": tensors[f"{side}_w_ih"],
            f"{cell}.hidden": tensors[f"{side}_w_hh"],
            f"{cell}.bias": tensors[f"{side}_b_ih"] + hidden_bias,
            f"{cell}.hidden_bias": tensors[f"{side}_b_hh"][reset_and_update:],
        }
    return ours
