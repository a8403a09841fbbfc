"""Names of older versions: of config types and options, of weights, of keys in JSON files. They are read for ever and never written.

Everything that reads a stored file passes it through here first, so that the rest of the package knows the present names only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

TYPE_ALIASES: dict[str, dict[str, str]] = {
    # section of a config: {old type: present type}
    "model": {
        "AdaptiveOutput": "AdaptiveSoftmax",
        "AttendPool": "AttentionPool",
        "Banded": "Llama3Scaling",
        "Compared": "BiEncoder",
        "Independent": "SoftmaxHead",
        "Interpolated": "LinearScaling",
        "Joined": "CrossEncoder",
        "LayerMix": "ScalarMix",
        "LetterConvolution": "CharCNN",
        "LetterRNN": "CharRNN",
        "Pooling": "GlobalAttention",
        "Segmented": "SegmentEmbedding",
        "Spans": "ExtractiveQA",
        "Spelling": "CharEmbedding",
        "ThoughtRNN": "RNNDecoder",
        "Transform": "HeadTransform",
        "TwoWays": "SeparateBiRNN",
    },
    "objective": {"mixed": "mixed_reward", "two_way": "bidirectional", "spans": "extractive_qa"},
    "train": {"Linear": "LinearDecay"},
}
OPTION_ALIASES: dict[str, dict[str, str]] = {
    # present type, or the section for options that belong to no type: {old option: present option}; "" holds the names of sections
    "": {"rates": "lr_factors", "adapt": "lora", "data": "batches"},
    "train": {
        "every": "eval_every",
        "save": "save_every",
        "log": "log_every",
        "keep": "keep_checkpoints",
        "valid": "eval_batches",
        "average": "average_checkpoints",
    },
    "AdamW": {"rate": "lr", "decay": "weight_decay"},
    "Classifier": {"unknown": "word_dropout"},
    "ExtractiveQA": {"unknown": "word_dropout"},
    "Regressor": {"unknown": "word_dropout"},
    "Tagger": {"spelling": "chars", "unknown": "word_dropout"},
    "SGD": {"rate": "lr", "decay": "weight_decay"},
    "Pairs": {"tokens": "batch_tokens", "longest": "max_length", "pool": "shuffle_pool"},
    "Tagged": {"tokens": "batch_tokens", "longest": "max_length", "pool": "shuffle_pool"},
    "Labelled": {"tokens": "batch_tokens", "longest": "max_length", "pool": "shuffle_pool"},
    "Questions": {"tokens": "batch_tokens", "longest": "max_length", "pool": "shuffle_pool"},
    "Masked": {"masked": "mask_fraction", "replaced": "random_fraction"},
    "masked": {"follows": "nsp_weight"},
    "Words": {"also": "extra_words"},
    "files": {"held": "valid_fraction"},
    "AttentiveRNN": {"read": "init_from", "thought": "summary"},
    "CharEmbedding": {"letters": "encoder", "size": "char_dim"},
    "Concatenated": {"code": "encoding"},
    "CrossAttention": {"groups": "kv_heads", "key": "key_dim"},
    "Experts": {"top": "top_k"},
    "RNNDecoder": {"read": "init_from"},
    "Rotary": {"stretch": "scaling"},
    "SelfAttention": {"groups": "kv_heads", "key": "key_dim", "value": "value_dim"},
    "Transformer": {"entry": "input_norm"},
}
# All of them: a config without any has present names only.
OLD_NAMES = frozenset(
    name for aliases in (*TYPE_ALIASES.values(), *OPTION_ALIASES.values()) for name in aliases
)
WEIGHT_RENAMES: list[tuple[str, str]] = [
    # (pattern of an old name, present name), tried alone and together on names that the model does not have
    (r"^back\.", "out_proj."),
    (r"^follows\.", "nsp_head."),
    (r"^spelling\.", "chars."),
    (r"\.first$", ".lora_a"),
    (r"\.last$", ".lora_b"),
    (r"\bproject\b", "qkv_proj"),
    (r"\bproject\b", "kv_proj"),
    (r"\bquery\b", "q_proj"),
    (r"\bfirst\b", "in_proj"),
    (r"\bfirst\b", "init_proj"),
    (r"\bfirst\b", "start_transitions"),
    (r"\blast\b", "out_proj"),
    (r"\blast\b", "end_transitions"),
    (r"\bsteps\b", "transitions"),
    (r"\bentry\b", "input_norm"),
    (r"\bcontext_share\b", "context_proj"),
    (r"\bback\b", "context_proj"),
    (r"\blook\b", "source_proj"),
    (r"\bahead\b", "forward_layers"),
    (r"\bback\b", "backward_layers"),
    (r"\bshares\b", "scalars"),
    (r"\bgain\b", "gamma"),
    (r"\bcolumns\b", "stacks"),
    (r"\bletters\b", "encoder"),
]
JSON_KEYS: dict[str, dict[str, str]] = {
    # file name: {old key: present key}
    "state.json": {"every": "eval_every", "worse": "evals_since_best", "promise": "estimate"},
    "begin.json": {"taken": "loaded", "left": "unused"},
    "metrics.jsonl": {"rate": "lr", "norm": "grad_norm", "valid": "valid_loss"},
    "results.json": {
        "best step": "best_step",
        "held out": "valid",
        "FLOPs per token": "flops_per_token",
        "begun": "from",
    },
    "meta.json": {  # of word vectors
        "kind": "method",
        "minimum": "min_count",
        "corpus words": "corpus_words",
        "negatives": "negative",
        "sample": "subsample",
        "rate": "lr",
        "average": "mean_context",
    },
}
METRIC_NAMES: dict[str, str] = {
    # old name of a metric: present name
    "BLEU": "bleu",
    "Pearson": "pearson",
    "RMSE": "rmse",
    "Spearman": "spearman",
    "answer F1": "answer_f1",
    "bits per byte": "bits_per_byte",
    "calibration error": "calibration_error",
    "chrF": "chrf",
    "exact match": "exact_match",
    "macro F1": "macro_f1",
    "nats per label": "nats_per_label",
    "nats per token": "nats_per_token",
    "next segment": "next_segment_accuracy",
    "phoneme error rate": "per",
    "pseudo-perplexity": "pseudo_perplexity",
    "span F1": "span_f1",
    "span precision": "span_precision",
    "span recall": "span_recall",
    "unknown words": "accuracy_unknown",
    "word error rate": "wer",
}


def upgrade_config(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A config with present names. An old name wins over the present one beside it: it can only come from a later change."""
    renamed = _rename(tree, OPTION_ALIASES.get("", {}))
    if isinstance(sizes := renamed.get("sizes"), Mapping):
        renamed["sizes"] = {
            size: {upgrade_path(path): value for path, value in changes.items()}
            if isinstance(changes, Mapping)
            else changes
            for size, changes in sizes.items()
        }
    return {section: _upgrade(value, str(section), str(section)) for section, value in renamed.items()}


def upgrade_path(path: str) -> str:
    """The dotted path of an option with the present name of its section."""
    section, dot, rest = path.partition(".")
    return OPTION_ALIASES.get("", {}).get(section, section) + dot + rest


def _upgrade(node: Any, section: str, owner: str) -> Any:
    types = TYPE_ALIASES.get(section, {})
    if isinstance(node, str):
        return types.get(node, node)
    if isinstance(node, list):
        return [_upgrade(item, section, owner) for item in node]
    if not isinstance(node, Mapping):
        return node
    if isinstance(name := node.get("type"), str):
        owner = types.get(name, name)
        node = {**node, "type": owner}
    renamed = _rename(node, OPTION_ALIASES.get(owner, {}))
    return {key: value if key == "type" else _upgrade(value, section, "") for key, value in renamed.items()}


def _rename(node: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key in sorted(node, key=lambda key: key in aliases):  # old names last
        value, name = node[key], aliases.get(key, key)
        before = result.get(name)
        result[name] = (
            {**before, **value} if isinstance(before, Mapping) and isinstance(value, Mapping) else value
        )
    return result


def upgrade_name(name: str, exists: Callable[[str], bool]) -> str:
    """The present name of a weight, of a part or of a pattern of them; `exists` says whether the model has a name.

    A name may hold several old words, so every combination of the renames is tried. A name that nothing
    fits stays as it is.
    """
    if exists(name):
        return name
    candidates = [name]
    for pattern, new in WEIGHT_RENAMES:
        for candidate in list(candidates):
            renamed = re.sub(pattern, new, candidate)
            if renamed in candidates:
                continue
            if exists(renamed):
                return renamed
            candidates.append(renamed)
    return name


def upgrade_weight(name: str, present: Container[str]) -> str:
    """The present name of a stored weight; `present` are the names that the model has."""
    return upgrade_name(name, present.__contains__)


def upgrade_weights(stored: Mapping[str, Any], present: Container[str]) -> dict[str, Any]:
    """Stored weights under the names that the model has."""
    return {upgrade_weight(name, present): value for name, value in stored.items()}


def upgrade_json(file: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """The top-level keys of a JSON file of a run under their present names."""
    keys = JSON_KEYS.get(file, {})
    return {keys.get(key, key): value for key, value in record.items()}


def upgrade_numbers(numbers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Metrics of a JSON file under their present names, with all keys."""
    return [
        {
            **dict.fromkeys(("name", "value", "low", "high", "n", "signature")),
            **number,
            "name": METRIC_NAMES.get(number["name"], number["name"]),
        }
        for number in numbers
    ]


def upgrade_metrics(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl under present names."""
    present = upgrade_json("metrics.jsonl", line)
    if "skipped" in present:
        return {"step": present["step"], "event": "skipped", "reason": present["skipped"]}
    return present


def upgrade_results(record: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a results.json that has the key `weights`, as older versions wrote it, in its present form."""
    present = upgrade_json("results.json", record)
    present["weights_sha256"] = present.pop("weights")["sha256"]
    present["valid"] = upgrade_numbers(present.get("valid", []))
    parts = present["parameters"]
    present["parameters"] = (
        {"total": parts} if isinstance(parts, int) else {"total": sum(parts.values()), "by_part": parts}
    )
    if present.get("from"):
        present["from"] = upgrade_json("begin.json", present["from"])
    if imported := present.pop("imported", None):
        special_tokens = present.pop("special tokens", {})
        present["from"] = {
            "format": imported["kind"],
            "source": imported["from"],
            "special_tokens": special_tokens,
        }
    return present
