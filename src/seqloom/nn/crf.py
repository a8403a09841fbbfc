"""Heads of a tagger: from a score for each token and label to a distribution over sequences of labels.

Both heads read `scores` (B, T, K), `tags` (B, T) and `mask` (B, T); padding may be anywhere and hold any value. Higher
orders and semi-Markov segments are left out, since no lecture has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused import crf as fused
from seqloom.nn.layer import gather_steps, left_align, real_lengths, require

FORBIDDEN = -1e4  # the score of a forbidden transition: probability 0, without NaN in sums


class TransitionScores(NamedTuple):
    """The scores that do not depend on the tokens."""

    transitions: Tensor  # (K, K), from the row's label to the column's
    start: Tensor  # (K,), of the first label
    end: Tensor  # (K,), of the last label


class AlignedScores(NamedTuple):
    """Scores with each row's real tokens first and zeros at padding."""

    scores: Tensor  # (B, T, K)
    mask: Tensor  # (B, T)
    order: Tensor | None  # (B, T), the indices that restore the positions of results; None if nothing moved


class TagHead(nn.Module):
    """P(y₁ … y_T) over all sequences of labels, from scores sₜ[k].

    `allowed` says which label may follow which: (K, K), or (K + 1, K + 1), where the last row says which labels may be
    first and the last column which may be last. With `spans` the labels mark spans (BIO, BIOES, BILOU), and
    `set_labels` derives `allowed` from their names.
    """

    allowed: Tensor | None

    def __init__(self, labels: int, allowed: Tensor | None = None, spans: bool = False):
        super().__init__()
        require(labels > 0, f"a tag head needs at least one label, not {labels}")
        self.labels = labels
        self.spans = spans
        if allowed is not None:
            shape = tuple(allowed.shape)
            require(
                shape in ((labels, labels), (labels + 1, labels + 1)),
                f"`allowed` for {labels} labels must be a square matrix of {labels} or {labels + 1} rows, not {shape}",
            )
            allowed = F.pad(allowed.bool(), (0, labels + 1 - shape[0]) * 2, value=True)
        self.register_buffer("allowed", allowed, persistent=False)

    def set_labels(self, names: Sequence[str]) -> None:
        """Sets the names of the labels; with `spans` they determine which label may follow which."""
        if self.spans:
            self.allowed = allowed_transitions(names)

    def nll(self, scores: Tensor, tags: Tensor, mask: Tensor | None = None) -> Tensor:
        """-ln P(tags) of each row, 0 for a row without tokens: (B,)."""
        raise NotImplementedError

    def decode(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """The most probable allowed sequence of each row, 0 at padding: (B, T)."""
        raise NotImplementedError

    def marginals(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """P(yₜ = k), 0 at padding: (B, T, K)."""
        raise NotImplementedError

    def apply_constraints(self, scores: TransitionScores) -> TransitionScores:
        """The scores, with FORBIDDEN for transitions that are not allowed."""
        if self.allowed is None:
            return scores
        return TransitionScores(
            scores.transitions.masked_fill(~self.allowed[:-1, :-1], FORBIDDEN),
            scores.start.masked_fill(~self.allowed[-1, :-1], FORBIDDEN),
            scores.end.masked_fill(~self.allowed[:-1, -1], FORBIDDEN),
        )


class SoftmaxHead(TagHead):
    """P(y₁ … y_T) = Πₜ softmax(sₜ)[yₜ]   [T1]

    The labels are independent; `allowed` restricts only the decoded sequence.
    """

    def nll(self, scores: Tensor, tags: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = full_mask(scores, mask)
        losses = F.cross_entropy(scores[mask], tags[mask], reduction="none")  # (N,)
        return losses.new_zeros(mask.shape).masked_scatter(mask, losses).sum(1)

    @torch.no_grad()
    def decode(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.allowed is None:
            return scores.argmax(-1).masked_fill(~full_mask(scores, mask), 0)
        zeros = scores.new_zeros(self.labels)
        constraints = self.apply_constraints(TransitionScores(torch.diag(zeros), zeros, zeros))
        return viterbi(scores, mask, constraints)

    def marginals(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        return scores.softmax(-1).masked_fill(~full_mask(scores, mask)[..., None], 0)


class CRF(TagHead):
    """P(y₁ … y_T) = exp(s(y)) / Σ_y' exp(s(y')),   s(y) = b[y₁] + Σₜ sₜ[yₜ] + Σₜ A[yₜ₋₁, yₜ] + e[y_T]   [T1]

    A linear-chain conditional random field (Lafferty et al.): A scores the transitions, b the first label, e the last.
    The sum over all sequences is computed from left to right, αₜ[k] = sₜ[k] + ln Σⱼ exp(αₜ₋₁[j] + A[j, k]); the best
    sequence uses max in place of the sum (Viterbi). The fast form is in fused/crf.py.
    """

    def __init__(self, labels: int, allowed: Tensor | None = None, spans: bool = False):
        super().__init__(labels, allowed, spans)
        self.transitions = nn.Parameter(torch.zeros(labels, labels))
        self.start_transitions = nn.Parameter(torch.zeros(labels))
        self.end_transitions = nn.Parameter(torch.zeros(labels))

    def transition_scores(self) -> TransitionScores:
        return self.apply_constraints(
            TransitionScores(self.transitions, self.start_transitions, self.end_transitions)
        )

    def nll(self, scores: Tensor, tags: Tensor, mask: Tensor | None = None) -> Tensor:
        tags = left_align_tags(tags, full_mask(scores, mask))
        scores, mask, _ = left_align_scores(scores, mask)
        if not scores.shape[1]:
            return scores.new_zeros(len(scores))
        transition_scores = self.transition_scores()
        transitions, start, end = transition_scores
        log_z = fused.log_partition(scores, real_lengths(mask), transition_scores)
        if log_z is None:
            log_z = (forward_scores(scores, mask, transitions, start)[-1] + end).logsumexp(1)
        last_tags = tags.gather(1, (real_lengths(mask) - 1).clamp(min=0)[:, None])[:, 0]
        emission = scores.gather(2, tags[..., None])[..., 0].masked_fill(~mask, 0).sum(1)
        transition = transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~mask[:, 1:], 0).sum(1)
        losses = log_z - emission - transition - start[tags[:, 0]] - end[last_tags]
        return losses.masked_fill(~mask[:, 0], 0)

    @torch.no_grad()
    def decode(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        return viterbi(scores, mask, self.transition_scores())

    @torch.no_grad()
    def marginals(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """P(yₜ = k) = exp(αₜ[k] + βₜ[k] - ln Z),   βₜ₋₁[j] = ln Σₖ exp(A[j, k] + sₜ[k] + βₜ[k])"""
        scores, mask, order = left_align_scores(scores, mask)
        if not scores.shape[1]:
            return torch.zeros_like(scores)
        transition_scores = self.transition_scores()
        transitions, start, end = transition_scores
        result = fused.marginals(scores, real_lengths(mask), transition_scores)
        if result is not None:
            return gather_steps(result, order)
        beta = [end.expand(len(scores), -1)]  # from right to left
        for score, real in zip(scores.unbind(1)[:0:-1], mask.unbind(1)[:0:-1], strict=True):
            previous = (transitions + (score + beta[-1])[:, None]).logsumexp(2)
            beta.append(torch.where(real[:, None], previous, beta[-1]))
        alpha = forward_scores(scores, mask, transitions, start)
        log_probs = torch.stack(alpha, 1) + torch.stack(beta[::-1], 1)  # (B, T, K), up to ln Z
        return gather_steps(log_probs.softmax(-1).masked_fill(~mask[..., None], 0), order)


def full_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones(scores.shape[:2], dtype=torch.bool, device=scores.device) if mask is None else mask


def left_align_tags(tags: Tensor, mask: Tensor) -> Tensor:
    """The tags with each row's real tokens first and zeros at padding: (B, T)."""
    return left_align_scores(tags[..., None], mask).scores[..., 0]


def left_align_scores(scores: Tensor, mask: Tensor | None) -> AlignedScores:
    present = full_mask(scores, mask)
    aligned, aligned_mask, order = left_align(scores, present)
    if aligned_mask is None:
        aligned_mask = present
    return AlignedScores(aligned.masked_fill(~aligned_mask[..., None], 0), aligned_mask, order)


def forward_scores(scores: Tensor, mask: Tensor, transitions: Tensor, start: Tensor) -> list[Tensor]:
    """αₜ for each t, (B, K) each; padding repeats the previous one."""
    alpha = [start + scores[:, 0]]
    transposed = transitions.T  # [k, j]: the sum is over the last axis
    for score, real in zip(scores.unbind(1)[1:], mask.unbind(1)[1:], strict=True):
        following = (alpha[-1][:, None] + transposed).logsumexp(2) + score
        alpha.append(torch.where(real[:, None], following, alpha[-1]))
    return alpha


def viterbi(scores: Tensor, mask: Tensor | None, transition_scores: TransitionScores) -> Tensor:
    """argmax_y s(y): computes the best score of a path that ends in k at t, with backpointers, and follows these from
    the best last label."""
    scores, mask, order = left_align_scores(scores, mask)
    tags = torch.zeros(scores.shape[:2], dtype=torch.long, device=scores.device)
    if not scores.shape[1]:
        return tags
    result = fused.viterbi(scores, real_lengths(mask), transition_scores)
    if result is not None:
        return gather_steps(result[..., None], order)[..., 0]
    transitions, start, end = transition_scores
    transposed = transitions.T.contiguous()
    best = start + scores[:, 0]
    backpointers: list[Tensor] = []
    same_label = torch.arange(len(start), device=scores.device)
    for score, real in zip(scores.unbind(1)[1:], mask.unbind(1)[1:], strict=True):
        value, previous = (best[:, None] + transposed).max(2)  # (B, K)
        best = torch.where(real[:, None], value + score, best)
        backpointers.append(torch.where(real[:, None], previous, same_label))
    path = [(best + end).argmax(1, keepdim=True)]
    for previous in reversed(backpointers):
        path.append(previous.gather(1, path[-1]))
    tags = torch.cat(path[::-1], 1).masked_fill(~mask, 0)
    return gather_steps(tags[..., None], order)[..., 0]


def allowed_transitions(labels: Sequence[str]) -> Tensor:
    """Which label may follow which in BIO, BIOES or BILOU, the sentence's boundary last: (K + 1, K + 1).

    A label is `O`, a prefix and a type (`B-PER`), or anything else, which may follow and precede every label. B opens a
    span; I and E (or L) continue a span of the same type. If the labels can close a span (E or L), an open span must be
    closed.
    """
    split = [
        label.partition("-")[::2] if label[1:2] == "-" and label[0] in "BIESLU" else ("O", "")
        for label in labels
    ] + [("O", "")]
    has_closing = any(prefix in "EL" for prefix, _ in split)
    allowed = torch.ones(len(split), len(split), dtype=torch.bool)
    for row, (prefix, span_type) in enumerate(split):
        is_open = prefix in "BI"
        for column, (next_prefix, next_type) in enumerate(split):
            if next_prefix in "IEL":
                allowed[row, column] = is_open and span_type == next_type
            else:
                allowed[row, column] = not (has_closing and is_open)
    return allowed
