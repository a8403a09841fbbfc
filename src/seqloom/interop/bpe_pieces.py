"""Tokenizers from lists of pieces, as other programs store them: byte-level byte-pair encoding, and SentencePiece's with scores."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level_pieces(name: str) -> pre_tokenizers.PreTokenizer | None:
    """How a text is divided before byte-pair encoding, by the name that llama.cpp gives to it; None for an unknown one."""
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if name in ("default", "gpt-2", "gpt2"):
        return plain
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain])
    if name in ("llama-bpe", "llama3", "llama-v3", "qwen2"):
        pattern = QWEN2 if name == "qwen2" else LLAMA3
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), raw])
    return None


def byte_level_bpe(
    vocab: dict[str, int], merges: Sequence[tuple[str, str]], pieces: pre_tokenizers.PreTokenizer
) -> Tokenizer:
    """Byte-pair encoding over bytes."""
    tokenizer = Tokenizer(models.BPE(vocab, list(merges)))
    tokenizer.pre_tokenizer = pieces
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def scored_bpe(
    pieces: Sequence[tuple[str, float]], first: int = 0, space_before: bool = True, unk: str = "<unk>"
) -> Tokenizer:
    """SentencePiece's byte-pair encoding: the pair whose union has the best score is merged first. Pieces before `first` are special."""
    vocab = {piece: index for index, (piece, _) in enumerate(pieces)}
    pairs = [
        (-score, vocab[piece[:cut]], vocab[piece[cut:]], piece[:cut], piece[cut:])
        for piece, score in pieces[first:]
        for cut in range(1, len(piece))
        if piece[:cut] in vocab and piece[cut:] in vocab
    ]
    merges = [(left, right) for _, _, _, left, right in sorted(pairs)]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token=unk, fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend("▁"), spaces])
        if space_before
        else normalizers.Sequence([spaces])
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def add_special(tokenizer: Tokenizer, special: Sequence[str], user: Sequence[str] = ()) -> None:
    """Marks tokens of the vocabulary as special, or as given by the user: both are found in a text before anything else."""
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    if user:
        tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in user])
