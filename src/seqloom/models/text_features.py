"""Texts as rows of numbers: word counts, TF-IDF, its singular vectors, and means of word vectors  [A4–A7, A9–A12].

Every feature set is the same computation: counts c of a text's words, weighted by u, divided by a norm, and, if there is one, times a table T.
It has two forms: `forward` for the ids of a batch, and `matrix` for the sparse counts of many texts, on which a solver of `train/` works.

Left out: character n-grams, and sublinear counts.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor, nn

from seqloom.nn.layer import require

FeatureMatrix: TypeAlias = csr_array | np.ndarray  # (texts, F)
HASH_FACTOR, HASH_PRIME = 1_000_003, 2**31 - 1


class TextFeatures(nn.Module):
    """x = c ⊙ u, c_w the number of times that the word w occurs in the text.

    u is 0 for special tokens and for words that the training texts do not have. With `ngrams`, runs of up to that many words count too: each
    has one of `buckets` rows, by its hash.
    """

    nonnegative: ClassVar[bool] = True
    dim: int

    def __init__(self, vocabulary: int, ngrams: int = 1, buckets: int = 1 << 18):
        super().__init__()
        require(ngrams >= 1 and buckets >= 1, "model.features: ngrams and buckets must be at least 1")
        self.vocabulary = vocabulary
        self.ngrams = ngrams
        self.buckets = buckets
        self.dim = self.columns = vocabulary + (buckets if ngrams > 1 else 0)
        self.weight = fixed(torch.ones(self.columns))

    def counts(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, T) → c (B, columns)"""
        known = mask & (self.weight[ids] > 0)
        counts = self.weight.new_zeros(len(ids), self.columns)
        counts.scatter_add_(1, ids, known.to(counts.dtype))
        runs, counted = ids, known
        for n in range(2, self.ngrams + 1):
            runs = (runs[:, :-1] * HASH_FACTOR + ids[:, n - 1 :]) % HASH_PRIME
            counted = counted[:, :-1] & known[:, n - 1 :]
            counts.scatter_add_(1, self.vocabulary + runs % self.buckets, counted.to(counts.dtype))
        return counts

    def count_matrix(self, ids: np.ndarray, offsets: np.ndarray) -> csr_array:
        """The counts of many texts, (texts, columns); text i has the ids from `offsets[i]` to `offsets[i + 1]`."""
        ids = ids.astype(np.int64)
        texts = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        known = self.weight.numpy()[ids] > 0
        rows, columns = [texts[known]], [ids[known]]
        runs, counted = ids, known
        for n in range(2, self.ngrams + 1):
            runs = (runs[:-1] * HASH_FACTOR + ids[n - 1 :]) % HASH_PRIME
            counted = counted[:-1] & known[n - 1 :] & (texts[: len(runs)] == texts[n - 1 :])
            rows.append(texts[: len(runs)][counted])
            columns.append(self.vocabulary + runs[counted] % self.buckets)
        pairs = np.concatenate(rows), np.concatenate(columns)
        shape = len(offsets) - 1, self.columns
        return csr_array((np.ones(len(pairs[0])), pairs), shape=shape)

    def fit(self, counts: csr_array) -> None:
        """Sets u, and the table if there is one, from the counts of the training texts."""
        self.weight.copy_(torch.from_numpy((document_counts(counts) > 0).astype(np.float32)))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, T) → x (B, F)"""
        return self.counts(ids, mask) * self.weight

    def matrix(self, counts: csr_array) -> FeatureMatrix:
        """(texts, columns) → x (texts, F)"""
        return (counts @ diags_array(as_double(self.weight))).tocsr()


class Counts(TextFeatures):
    """x = c ⊙ u,   u_w = 1 if the training texts have the word w   [A4]

    c_w is the number of times that the word w occurs in the text: the bag of words.
    """


class TFIDF(TextFeatures):
    """x = (c ⊙ u) / |c ⊙ u|,   u_w = 1 + ln((1 + n) / (1 + n_w))   [A5]

    n_w of the n training texts contain the word w, which occurs c_w times in this one.
    """

    def fit(self, counts: csr_array) -> None:
        num_texts = document_counts(counts)
        idf = np.where(num_texts > 0, np.log((1 + counts.shape[0]) / (1 + num_texts)) + 1, 0)
        self.weight.copy_(torch.from_numpy(idf))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.counts(ids, mask) * self.weight
        return x / norm_or_one(torch.linalg.vector_norm(x, dim=1, keepdim=True))

    def matrix(self, counts: csr_array) -> FeatureMatrix:
        x = (counts @ diags_array(as_double(self.weight))).tocsr()
        return scale_rows(x, np.sqrt(x.multiply(x).sum(axis=1)))


class DenseFeatures(TextFeatures):
    """x = y T / s, where y is a text's weighted counts; s makes the mean of x² over the training texts 1, so that one penalty suits all tables."""

    nonnegative = False

    def __init__(self, vocabulary: int, dim: int = 100, ngrams: int = 1, buckets: int = 1 << 18):
        super().__init__(vocabulary, ngrams, buckets)
        require(dim >= 1, f"model.features.dim must be at least 1, not {dim}")
        self.dim = dim
        self.table = fixed(torch.zeros(self.columns, dim))
        self.scale = fixed(torch.ones((), dtype=torch.float64))

    def weighted(self, counts: Tensor) -> Tensor:
        """c → y (B, columns)"""
        raise NotImplementedError

    def weighted_matrix(self, counts: csr_array) -> csr_array:
        """`weighted` of the counts of many texts."""
        raise NotImplementedError

    def set_scale(self, counts: csr_array) -> None:
        """Sets s."""
        x = self.weighted_matrix(counts) @ as_double(self.table)
        self.scale.fill_(float(np.sqrt(np.mean(x**2))) or 1.0)

    def scaled_table(self) -> Tensor:
        """T / s"""
        return (self.table.double() / self.scale).to(self.table.dtype)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.weighted(self.counts(ids, mask)) @ self.scaled_table()

    def matrix(self, counts: csr_array) -> FeatureMatrix:
        return self.weighted_matrix(counts) @ as_double(self.scaled_table())


class SVD(DenseFeatures):
    """x = y T / s,   y = (c ⊙ u) / |c ⊙ u|   [A7]

    y is TF-IDF, T the first `dim` right singular vectors of the training texts' TF-IDF: latent semantic analysis. s makes the mean of x² over
    the training texts 1.
    """

    def fit(self, counts: csr_array) -> None:
        from scipy.sparse.linalg import svds

        TFIDF.fit(self, counts)  # type: ignore[arg-type]  # the same weights
        x = self.weighted_matrix(counts)
        rank = min(self.dim, min(x.shape) - 1)
        self.table.zero_()
        if rank > 0:
            _, _, directions = svds(x, rank, v0=np.ones(min(x.shape)), solver="arpack")
            signs = np.sign(directions[np.arange(rank), np.abs(directions).argmax(1)])
            self.table[:, :rank] = torch.from_numpy((directions * signs[:, None])[::-1].T.copy()).float()
        self.set_scale(counts)

    def weighted(self, counts: Tensor) -> Tensor:
        x = counts * self.weight
        return x / norm_or_one(torch.linalg.vector_norm(x, dim=1, keepdim=True))

    def weighted_matrix(self, counts: csr_array) -> csr_array:
        x = (counts @ diags_array(as_double(self.weight))).tocsr()
        return scale_rows(x, np.sqrt(x.multiply(x).sum(axis=1)))


class MeanVectors(DenseFeatures):
    """x = Σ_w c_w u_w T_w / Σ_w c_w u_w / s   [A9–A12]

    The mean of the vectors T of a text's words; u_w is 1 if w has a vector. The vectors are trained on the training texts by `method`, or
    come from `vectors`, a file or folder of word vectors. s makes the mean of x² over the training texts 1.
    """

    def __init__(
        self,
        vocabulary: int,
        dim: int = 100,
        method: Literal["skip-gram", "cbow", "glove", "ppmi-svd"] = "skip-gram",
        vectors: str | None = None,
        epochs: int | None = None,
        min_count: int = 2,
    ):
        super().__init__(vocabulary, dim)
        self.method = method
        self.vectors = vectors
        self.epochs = epochs
        self.min_count = min_count

    def set_vectors(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Gives the words `ids` their vectors; the others have none."""
        self.table.zero_()
        self.table[torch.from_numpy(ids)] = torch.from_numpy(np.asarray(vectors, np.float32))
        self.weight.zero_()
        self.weight[torch.from_numpy(ids)] = 1

    def fit(self, counts: csr_array) -> None:
        self.set_scale(counts)

    def weighted(self, counts: Tensor) -> Tensor:
        x = counts * self.weight
        return x / norm_or_one(x.sum(1, keepdim=True))

    def weighted_matrix(self, counts: csr_array) -> csr_array:
        x = (counts @ diags_array(as_double(self.weight))).tocsr()
        return scale_rows(x, x.sum(axis=1))


def fixed(tensor: Tensor) -> nn.Parameter:
    """A weight that is computed, not learnt by gradients."""
    return nn.Parameter(tensor, requires_grad=False)


def as_double(parameter: Tensor) -> np.ndarray:
    return parameter.detach().double().numpy()


def norm_or_one(norm: Tensor) -> Tensor:
    """The divisor of a row; a row of zeros stays as it is."""
    return torch.where(norm == 0, 1.0, norm)


def scale_rows(x: csr_array, divisors: np.ndarray) -> csr_array:
    """x with each row divided by its divisor; a row of zeros stays as it is."""
    divisors = np.asarray(divisors).reshape(-1)
    return (diags_array(1 / np.where(divisors == 0, 1, divisors)) @ x).tocsr()


def document_counts(counts: csr_array) -> np.ndarray:
    """In how many texts each column occurs."""
    return np.bincount(counts.tocoo().coords[1], minlength=counts.shape[1])
