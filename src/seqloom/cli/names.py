"""Names of other tools and of older versions, and what they are called here.

An older name runs for two releases and prints the present one. The name of another tool is an error that says ours.
"""

from __future__ import annotations

# The verbs by group, in the order of `seqloom --help`.
VERBS = {
    "Start": ("demo", "presets", "env"),
    "Train": ("train", "check", "runs", "prefer"),
    "Use": (
        *("generate", "chat", "translate", "summarize", "transcribe", "caption", "predict", "fill-mask"),
        "embed",
        "score",
    ),
    "Look inside": ("explain", "inspect"),
    "Compare": ("evaluate", "compare"),
    "Data and words": ("data", "vectors"),
    "Files, service": ("import", "export"),
}

# Older verbs.
OLD_VERBS: dict[str, tuple[str, ...]] = {
    "align": ("inspect", "alignment"),
    "fill": ("fill-mask",),
    "world": ("data", "world"),
    "dictionary": (  # with the shares of its time
        *("data", "split", "--by", "word", "--format", "dictionary"),
        *("--valid", "0.05078125", "--test", "0.05078125"),
    ),
}

# Older options of a verb; "" is every verb.
OLD_OPTIONS: dict[str, dict[str, str]] = {
    "export": {"--to": "--format"},
    "generate": {
        "--length": "--max-tokens",
        "--penalty": "--length-penalty",
        "--repetition": "--repetition-penalty",
        "--samples": "--n",
        "--nbest": "--n",
    },
    "embed": {"--length": "--max-input-tokens"},
    "predict": {"--form": "--format"},
    "data show": {"--form": "--format", "--show-first": "--limit"},
    "data world": {"--show-first": "--limit"},
    "translate": {
        "--penalty": "--length-penalty",
        "--coverage": "--coverage-penalty",
        "--nbest": "--n",
        "--source": "--source-lang",
        "--target": "--target-lang",
    },
    "evaluate": {"--penalty": "--length-penalty", "--pseudo": "--pseudo-perplexity"},
    "vectors train": {
        "--kind": "--method",
        "--minimum": "--min-count",
        "--most": "--max-vocab",
        "--negatives": "--negative",
        "--sample": "--subsample",
        "--rate": "--lr",
        "--average": "--mean-context",
    },
    "vectors nearest": {"--count": "--top"},
    "vectors analogy": {"--count": "--top"},
    "vectors evaluate": {"--most": "--limit"},
    "vectors map": {"--most": "--limit"},
    "vectors convert": {"--form": "--format"},
}

# Older options with a value, and the present option without one, "" for none.
OLD_VALUES: dict[str, dict[tuple[str, str], str]] = {
    "translate": {("--unk", "replace"): "--replace-unknowns", ("--unk", "ban"): ""},
}

# Options of other tools, and ours.
PEER_OPTIONS = {
    "--max-new-tokens": "--max-tokens",
    "--max_new_tokens": "--max-tokens",
    "--max-length": "--max-tokens",
    "--n-predict": "--max-tokens",
    "--num-beams": "--beam",
    "--beam-size": "--beam",
    "--num-return-sequences": "--n",
    "--stop-strings": "--stop",
    "--stop_strings": "--stop",
    "--num-samples": "--n",
    "--num_samples": "--n",
    "--temp": "--temperature",
    "--prompt": "the text itself, the second argument",
    "-p": "the text itself, the second argument",
    "-n": "--max-tokens, or --n for the number of texts",
    "--output-dir": "--out",
    "--output_dir": "--out",
    "--output": "--out",
    "-o": "--out",
    "--save-dir": "--out",
    "--train-file": "--data",
    "--train_file": "--data",
    "--train": "--data",
    "--validation-file": "--valid",
    "--validation_file": "--valid",
    "--dev": "--valid",
    "--test-file": "--test",
    "--input": "--file",
    "--max-steps": "--steps",
    "--max_steps": "--steps",
    "--num-train-epochs": "--epochs",
    "--num_train_epochs": "--epochs",
    "--resume": "the run folder, as in: seqloom train RUN",
    "-m": "the run folder, the first argument",
    "--model": "the run folder or the preset, the first argument",
    "--lr": "the change train.optimizer.lr=…",
    "--learning-rate": "the change train.optimizer.lr=…",
    "--learning_rate": "the change train.optimizer.lr=…",
    "--weight-decay": "the change train.optimizer.weight_decay=…",
    "--batch-size": "a change of the section batches, such as batches.batch=32",
    "--batch_size": "a change of the section batches, such as batches.batch=32",
    "--dropout": "a change of the model, see: seqloom explain PRESET",
    "--layers": "a change of the model, such as model.stack.layers=4",
    "--topn": "--top",
    "--dtype": "the change train.precision=…",
    "--do-sample": "nothing: sampling is the default of language models; --greedy turns it off",
    "--do_sample": "nothing: sampling is the default of language models; --greedy turns it off",
}

# Options that other tools have for the verbs of a group, where `PEER_OPTIONS` would say something else: word2vec's, fastText's, gensim's.
GROUP_PEER_OPTIONS: dict[str, dict[str, str]] = {
    "inspect": {"--data": "--file", "--test": "--file"},
    "vectors": {
        **dict.fromkeys(
            ("--vector-size", "--vector_size", "--size", "--dimension", "-size", "-dim"), "--dim"
        ),
        **dict.fromkeys(("--learning-rate", "--learning_rate", "--alpha", "-alpha", "-lr"), "--lr"),
        **dict.fromkeys(("--workers", "--thread", "-thread", "-threads"), "--threads"),
        **dict.fromkeys(("--epoch", "--iter", "-epoch", "-iter"), "--epochs"),
        **dict.fromkeys(("--ws", "--window-size", "-ws", "-window"), "--window"),
        **dict.fromkeys(("--neg", "-neg", "-negative"), "--negative"),
        **dict.fromkeys(("-minCount", "-min-count"), "--min-count"),
        **dict.fromkeys(("--max-vocab-size", "--max-final-vocab"), "--max-vocab"),
        **dict.fromkeys(("--minn", "--maxn", "-minn", "-maxn"), "--subwords"),
        **dict.fromkeys(("--sg", "--cbow", "--cbow-mean", "-cbow", "--model"), "--method"),
        **dict.fromkeys(
            ("--input", "--train", "--data", "--file", "-input", "-train"), "an argument: the files"
        ),
        **dict.fromkeys(("--restrict-vocab", "--restrict_vocab"), "--limit"),
        "-sample": "--subsample",
        "-output": "--out",
    },
}
