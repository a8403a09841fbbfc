"""From generated ids to text: the spaces after a prompt, and the strings that end a text."""

from __future__ import annotations

from collections.abc import Sequence

from seqloom.errors import UserError
from seqloom.run import Run
from seqloom.text.unknown_words import source_words

PROMPT_TOKENS = 16  # how many of a prompt's last ids decide how the next word is spelt


class Detokenizer:
    """Decodes new ids as they read after their prompt: the text of prompt and ids, without the prompt's.

    Words are thus separated as the tokenizer does it. The last ids of the prompt are enough; a translation does not
    follow its prompt and is decoded alone.
    """

    def __init__(self, run: Run, prompt: str, prompt_ids: list[int]):
        self.run = run
        self.context_ids = prompt_ids[-PROMPT_TOKENS:] if run.model.continues else []
        decoded = run.decode(self.context_ids)
        self.prompt_ends_with_space = prompt[-1:].isspace() and not decoded[-1:].isspace()
        self.prompt_is_unknown = bool(self.context_ids and prompt.strip() and not decoded)
        self.source_words = source_words(run.tokenizer, prompt) if run.model.copies else []

    def __call__(self, ids: list[int]) -> str:
        if self.source_words:
            return self.with_copies(ids)
        # Any word shows how the next one is spelt after it.
        context = ids[:1] if self.prompt_is_unknown else self.context_ids
        before = self.run.decode(context)
        both = self.run.decode([*context, *ids])
        text = both[len(before) :] if both.startswith(before) else self.run.decode(ids)
        return text.removeprefix(" ") if self.prompt_ends_with_space else text

    def with_copies(self, ids: list[int]) -> str:
        """The text of ids of which V + j is the word at the position j of the source."""
        tokenizer = self.run.tokenizer
        vocabulary = tokenizer.get_vocab_size()
        words = [
            tokenizer.id_to_token(index) or ""
            if index < vocabulary
            else "".join(self.source_words[index - vocabulary : index - vocabulary + 1])
            for index in ids
            if index not in self.run.specials.stop_ids
        ]
        return tokenizer.decoder.decode(words) if tokenizer.decoder else " ".join(words)


class StopStrings:
    """Whether new ids end with one of the strings, wherever tokens begin and end. Only the last ids are decoded."""

    def __init__(self, detokenizer: Detokenizer, strings: Sequence[str]):
        if any(not string for string in strings):
            raise UserError("an empty stop string ends every text at once: give some text, or leave it out")
        self.detokenizer = detokenizer
        self.strings = strings
        max_length = max((len(string) for string in strings), default=0)
        self.max_ids = 8 + 4 * max_length  # a character has at most four bytes, each of them perhaps a token

    def __call__(self, ids: list[int]) -> bool:
        if len(ids) <= self.max_ids:
            text = self.detokenizer(ids)
        else:
            text = self.detokenizer.run.decode(ids[-self.max_ids :])
        return any(string in text for string in self.strings)

    def truncate(self, text: str) -> str:
        """The text before the first of the strings."""
        return truncate_at_stop(text, self.strings)

    def complete_length(self, text: str) -> int:
        """How many characters of the text cannot be the beginning of a stop string."""
        overlaps = (
            length
            for string in self.strings
            for length in range(1, len(string))
            if text.endswith(string[:length])
        )
        return len(text) - max(overlaps, default=0)


def truncate_at_stop(text: str, strings: Sequence[str]) -> str:
    """The text before the first of the strings."""
    positions = (text.find(string) for string in strings)
    return text[: min((position for position in positions if position >= 0), default=len(text))]
