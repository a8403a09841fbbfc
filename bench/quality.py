"""Quality on real data, as the tables of docs/figures.md: language models on tiny Shakespeare and, by words, on WikiText-2; translators on Multi30k;
taggers on English EWT, classifiers on SST-2 and SICK, from scratch and from MiniLM; recognizers of speech on AN4, FSDD and the world's voice.

    SEQLOOM_DATA=… python bench/quality.py characters|words|translation|tagging|sentiment|nli|finetuned|feedback
        |drawings|emoji|flickr8k|an4|fsdd|spoken|molecules|folds|summaries
        [--out FOLDER] [--minutes 12] [--only RUN] [--threads N]

Runs that are there already are not trained again; one that was cut goes on. SEQLOOM_MINILM is the folder of MiniLM's files.
"""

import argparse
import gzip
import os
import sys
from functools import partial
from pathlib import Path

import torch

import seqloom
from seqloom.config_source import is_run
from seqloom.evaluation import evaluate
from seqloom.run import Run, load

ONLY, THREADS = "", os.cpu_count() or 1


def fitted(
    folder: Path,
    name: str,
    *overrides: str,
    data: list[Path],
    valid: list[Path | float] | None = None,
    base: Path | None = None,
    seed: int = 0,
) -> Run | None:
    """The trained run; None where it is not the one that is asked for."""
    if ONLY not in ("", folder.name):
        return None
    if is_run(folder) and (folder / "results.json").exists():
        return load(folder)
    files = {"data": [str(p) for p in data], "valid": valid and [str(p) for p in valid]}
    return seqloom.fit(name, *overrides, **files, out=folder, base=base, threads=THREADS, seed=seed)


def row(run: Run, *cells: object) -> str:
    results = run.results
    count = results.parameters.total
    took, promised = results.actual.seconds / 60, results.promised.seconds / 60
    return (
        "| "
        + " | ".join(
            map(
                str,
                [run.folder.name, f"{count:,}", results.steps, *cells, f"{took:.1f}", f"{promised:.1f}"],
            )
        )
        + " |"
    )


def characters(place: Path, out: Path) -> None:
    """nanoGPT's CPU recipe (4 layers, 4 heads, 128 wide, context 64, batch 12, 2,000 steps) and an LSTM of the same size and steps."""
    print(
        "| run | parameters | steps | nats/char, held out | bits/byte | minutes | promised |\n|---|---|---|---|---|---|---|"
    )
    for name in ("gpt", "lstm-lm"):
        if (run := fitted(out / name, name, data=[place / "tinyshakespeare" / "input.txt"])) is None:
            continue
        held = {number.name: number.value for number in run.results.valid}
        print(row(run, f"{held['nats_per_token']:.4f}", f"{held['bits_per_byte']:.4f}"), flush=True)


def words(place: Path, out: Path, minutes: float) -> None:
    """Word-level WikiText-2, trained for the given minutes; perplexity of every token of the test file, one <eos> a line."""
    print(
        "| run | parameters | steps | perplexity, valid | perplexity, test | tokens | minutes | promised |\n|---|---|---|---|---|---|---|---|"
    )
    files = {side: place / "wikitext-2" / f"{side}.txt.gz" for side in ("train", "valid", "test")}
    for name in ("lstm-words", "transformer-words"):
        if (
            run := fitted(
                out / name, name, f"train.minutes={minutes}", data=[files["train"]], valid=[files["valid"]]
            )
        ) is None:
            continue
        strides = {} if name == "lstm-words" else {"stride": 24}
        found = [evaluate(run, [str(files[side])], **strides)["perplexity"] for side in ("valid", "test")]
        tokens = found[1].signature.partition("tokens:")[2].partition("|")[0]
        print(row(run, *(f"{number.value:.2f}" for number in found), tokens), flush=True)
        print(found[1].signature, file=sys.stderr)


def translation(place: Path, out: Path, minutes: float) -> None:
    """English to German captions, trained for the given minutes, scored on test 2016 (detokenised sacreBLEU)."""
    print(
        "| run | parameters | steps | BLEU greedy | BLEU beam 5 | chrF | nats/token | minutes | promised |\n|---|---|---|---|---|---|---|---|---|"
    )
    files = {
        side: [place / "multi30k" / f"{side}.{tongue}.gz" for tongue in ("en", "de")]
        for side in ("train", "val", "test_2016_flickr")
    }
    more = [
        "model.dropout=0.1",
        "model.encoder.dropout=0.2",
        "model.decoder.dropout=0.2",
        "train.average_checkpoints=5",
    ]  # for 40 minutes on two cores
    for name, changes in {"transformer": more, "rnnsearch": []}.items():
        if (
            run := fitted(
                out / name,
                name,
                f"train.minutes={minutes}",
                *changes,
                data=files["train"],
                valid=files["val"],
            )
        ) is None:
            continue
        test = [str(path) for path in files["test_2016_flickr"]]
        greedy, wide = (evaluate(run, test, beam=width) for width in (1, 5))
        cells = [
            f"{greedy['bleu'].value:.2f}",
            f"{wide['bleu'].value:.2f}",
            f"{greedy['chrf'].value:.2f}",
            f"{greedy['nats_per_token'].value:.4f}",
        ]
        print(row(run, *cells), flush=True)
        print(greedy["bleu"].signature, file=sys.stderr)


def vectors(place: Path, out: Path) -> Path:
    """Skip-gram vectors of 17 million words, learnt once: five epochs, 100 numbers."""
    from seqloom.vectors.formats import save
    from seqloom.vectors.training import train

    folder = out / "vectors"
    if not folder.exists():
        out.mkdir(parents=True, exist_ok=True)
        save(train(place / "enwiki17m" / "enwiki17m.txt.gz", "skip-gram", epochs=5), folder)
    return folder


def labelled(run: Run | None, test: Path, *names: str) -> None:
    if run is None:
        return
    found = evaluate(run, [str(test)])
    print(
        row(run, *(f"{found[name].value:.2f}" if name in found else "–" for name in names)), flush=True
    )  # pieces leave no word unknown
    print(found[names[0]].signature, file=sys.stderr)


def tagging(place: Path, out: Path, minutes: float) -> None:
    """Universal parts of speech of English EWT: from scratch, as a path of tags, and from word vectors, which know more words."""
    print(
        "| run | parameters | steps | accuracy, test | unknown words | calibration error | minutes | promised |\n|---|---|---|---|---|---|---|---|"
    )
    files = {side: place / "ud" / f"en_ewt-ud-{side}.conllu.gz" for side in ("train", "dev", "test")}
    known = vectors(place, out)
    begun = [f"tokenizer.extra_words={known}", f"model.embedding={{type: Embedding, vectors: {known}}}"]
    runs = {"tagger": ("tagger", []), "tagger-crf": ("tagger", ["model.head=CRF"]), "tagger-vectors": ("tagger", begun),
            "tagger-transformer": ("tagger-transformer", [])}  # fmt: skip
    for name, (preset, changes) in runs.items():
        run = fitted(
            out / name,
            preset,
            f"train.minutes={minutes}",
            *changes,
            data=[files["train"]],
            valid=[files["dev"]],
        )
        labelled(run, files["test"], "accuracy", "accuracy_unknown", "calibration_error")


def movies(place: Path, out: Path) -> list[Path]:
    """SST-2's sentences and the phrases in them to learn, sentences to hold out, to test on. A phrase that is one of the latter is left out."""
    rows = {}
    for side in ("train", "dev", "test"):
        with gzip.open(place / "sentiment" / f"stsa.binary.{side}.gz", "rt", encoding="utf-8") as file:
            rows[side] = [(text.strip(), label) for label, _, text in (line.partition(" ") for line in file)]
    unseen = {text for side in ("dev", "test") for text, _ in rows[side]}
    with gzip.open(place / "sentiment" / "glue_sst2.train_phrases.tsv.gz", "rt", encoding="utf-8") as file:
        phrases = [
            (text.strip(), label.strip()) for text, _, label in (line.partition("\t") for line in file)
        ][1:]
    rows["train"] = [(text, label) for text, label in phrases if text not in unseen] + rows["train"]
    (out / "sst").mkdir(parents=True, exist_ok=True)
    paths = [out / "sst" / f"{side}.tsv" for side in rows]
    for path, some in zip(paths, rows.values(), strict=True):
        path.write_text("".join(f"{text}\t{label}\n" for text, label in some), "utf-8")
    return paths


LABELS = "| run | parameters | steps | accuracy, test | macro F1 | calibration error | minutes | promised |\n|---|---|---|---|---|---|---|---|"
SICK = ["corpus.columns=[1, 2, 4]", "corpus.header=true"]


def pairs(place: Path) -> list[Path]:
    return [place / "nli" / f"SICK_{side}.txt.gz" for side in ("train", "trial", "test_annotated")]


def sentiment(place: Path, out: Path, minutes: float) -> None:
    """SST-2: sentences and phrases to learn, sentences to test. As many steps as the preset has, whatever the minutes: more only learn by heart."""
    print(LABELS)
    train, dev, test = movies(place, out)
    known = vectors(place, out)
    begun = [
        f"tokenizer.extra_words={known}",
        "model.dim=100",
        f"model.embedding={{type: Embedding, scale: true, vectors: {known}}}",
    ]
    for name, changes, seed in (
        ("classifier", [], 0),
        ("classifier-1", [], 1),
        ("classifier-2", [], 2),
        ("classifier-vectors", begun, 0),
    ):
        run = fitted(out / name, "classifier", *changes, data=[train], valid=[dev], seed=seed)
        labelled(run, test, "accuracy", "macro_f1", "calibration_error")


def nli(place: Path, out: Path, minutes: float) -> None:
    """SICK: entailment, and how related two sentences are; read as one, or each by itself."""
    print(LABELS)
    train, dev, test = pairs(place)
    for name, changes in {"nli": [], "nli-compared": ["model.pair=BiEncoder"]}.items():
        run = fitted(
            out / name, "nli", *SICK, f"train.minutes={minutes}", *changes, data=[train], valid=[dev]
        )
        labelled(run, test, "accuracy", "macro_f1", "calibration_error")
    print(
        "\n| run | parameters | steps | Spearman, test | Pearson | RMSE | minutes | promised |\n|---|---|---|---|---|---|---|---|"
    )
    asked = ["corpus.columns=[1, 2, 3]", "corpus.header=true", f"train.minutes={minutes}"]
    labelled(
        fitted(out / "similarity", "similarity", *asked, data=[train], valid=[dev]),
        test,
        "spearman",
        "pearson",
        "rmse",
    )


def finetuned(place: Path, out: Path, minutes: float) -> None:
    """MiniLM, read by our importer, learns SST-2 from its sentences and phrases, and SICK."""
    if "SEQLOOM_MINILM" not in os.environ:
        sys.exit("set SEQLOOM_MINILM to the folder of MiniLM's files")
    base = out / "minilm"
    if not base.exists():
        seqloom.import_checkpoint(os.environ["SEQLOOM_MINILM"], base)
    print(LABELS)
    slow = [
        "train.optimizer.lr=1e-4",
        "layer_decay=0.9",
        "train.average_checkpoints=3",
        "model.dropout=0.1",
        "model.word_dropout=0",
        "batches.batch_tokens=1024",
        "objective.smoothing=0.1",
        "train.eval_every=150",
        f"train.minutes={minutes}",
    ]
    for name, preset, changes, files in (
        ("minilm-sst2", "classifier", [], movies(place, out)),
        ("minilm-sick", "nli", SICK, pairs(place)),
    ):
        train, dev, test = files
        run = fitted(out / name, preset, *changes, *slow, data=[train], valid=[dev], base=base)
        labelled(run, test, "accuracy", "macro_f1", "calibration_error")


def json_lines(source: Path, target: Path) -> Path:
    """A JSON array or JSON Lines as JSON Lines."""
    import json

    with gzip.open(source, "rt", encoding="utf-8") as file:
        text = file.read()
    records = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return target


def divided(source: Path, folder: Path) -> list[Path]:
    """Train, valid and test files of a JSON array; records with equal or nearly equal prompts are in one of them."""
    if not folder.exists():
        whole = json_lines(source, folder.with_suffix(".jsonl"))
        seqloom.data.split(whole, out=folder, valid=0.1, test=0.1, by="near")
    return [folder / f"{side}.jsonl" for side in ("train", "valid", "test")]


def judged_baseline(train: Path, test: Path) -> str:
    """P(a good answer scores above a bad one) by a logistic regression of words and pairs of words: of the last question and the answer."""
    import json

    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    sides = []
    for path in (train, test):
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        asked = [[m["content"] for m in record["messages"] if m["role"] == "user"] for record in records]
        texts = [
            f"{(q or [''])[-1]} | {record['completion']}" for q, record in zip(asked, records, strict=True)
        ]
        sides.append((texts, [record["label"] for record in records]))
    (texts, labels), (unseen, wanted) = sides
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    model = LogisticRegression(max_iter=2000, class_weight="balanced").fit(words.fit_transform(texts), labels)
    area = roc_auc_score(wanted, model.decision_function(words.transform(unseen)))
    return f"| logistic regression of words | | | ranking_accuracy {100 * area:.2f} | | | |"


def feedback(place: Path, out: Path, minutes: float) -> None:
    """Perplexity of the assistant's turns after supervised tuning, accuracy and calibration of reward models, and accuracy of DPO's implied reward:
    on coffee orders (Taskmaster, with its own test files) and on polite against impolite answers. Small models from scratch."""
    from seqloom.studies.policy_measures import implicit_rewards

    folder, orders = out / "feedback-data", place / "taskmaster"
    splits = ("train", "valid", "test")
    chats = [json_lines(orders / f"{s}.jsonl.gz", folder / f"tm-{s}.jsonl") for s in splits]
    judged = [json_lines(orders / f"reward.{s}.jsonl.gz", folder / f"tm-reward-{s}.jsonl") for s in splits]
    polite = divided(place / "preference/instruction-data-with-preference.json.gz", folder / "polite")
    texts = divided(place / "instruction/instruction-data.json.gz", folder / "instruction")
    print("| run | parameters | steps | score | 95 % | minutes | promised |\n|---|---|---|---|---|---|---|")
    size = ["tokenizer={type: BPE, size: 2000}", "train.optimizer.lr=1e-3", "model.dropout=0.1"]
    size.append(f"train.minutes={minutes}")
    rewards = ["train.optimizer.lr=3e-4", "model.dropout=0.1", "train.eval_every=20", "train.steps=200"]
    single = [
        "corpus={type: Judged}",
        "batches={type: Judgements, max_length: 256}",
        "objective={type: judged}",
    ]
    single += ["train.steps=800", "train.eval_every=50"]  # nothing is learnt in the first 250
    wanted = {
        "sft": ["perplexity"],
        "reward": ["ranking_accuracy", "preference_accuracy", "calibration_error"],
        "dpo": ["implicit_reward_accuracy", "calibration_error"],
    }
    for name, preset, changes, base, (train, valid, test) in (
        ("taskmaster-sft", "sft", size, None, chats),
        ("taskmaster-reward", "reward", [*rewards, *single], "taskmaster-sft", judged),
        ("instruction-sft", "sft", size, None, texts),
        ("polite-reward", "reward", rewards, "instruction-sft", polite),
        ("polite-dpo", "dpo", ["train.steps=100"], "instruction-sft", polite),
    ):
        before = out / base if base else None
        run = fitted(out / name, preset, *changes, data=[train], valid=[valid], base=before)
        if run is None:
            continue
        compared = implicit_rewards(run, before, str(test)) if preset == "dpo" and before else None
        numbers = compared or evaluate(run, str(test))
        for number in numbers:
            if number.name in wanted[preset]:
                print(row(run, f"{number.name} {number.value:.2f}", number.interval), flush=True)
    print(judged_baseline(judged[0], judged[2]))


def speech(what: str, place: Path, out: Path, minutes: float) -> None:
    """A table of bench/recognition.py: an4, fsdd or spoken."""
    import recognition

    getattr(recognition, what)(place, out, minutes, fitted, row)


def strings(what: str, place: Path, out: Path, minutes: float) -> None:
    """A table of bench/strings.py: molecules, folds or summaries."""
    import strings as tables

    getattr(tables, what)(place, out, minutes, fitted, row)


def pictures(what: str, place: Path, out: Path, minutes: float) -> None:
    """A table of bench/captions.py: drawings, emoji or flickr8k."""
    import captions

    getattr(captions, what)(place, out, minutes, fitted, row)


TIMED = {
    "molecules": partial(strings, "molecules"),
    "folds": partial(strings, "folds"),
    "summaries": partial(strings, "summaries"),
    "drawings": partial(pictures, "drawings"),
    "emoji": partial(pictures, "emoji"),
    "flickr8k": partial(pictures, "flickr8k"),
    "an4": partial(speech, "an4"),
    "fsdd": partial(speech, "fsdd"),
    "spoken": partial(speech, "spoken"),
    "feedback": feedback,
    "words": words,
    "translation": translation,
    "tagging": tagging,
    "sentiment": sentiment,
    "nli": nli,
    "finetuned": finetuned,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["characters", *TIMED])
    parser.add_argument("--out", type=Path, default=Path("runs/figures"))
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--only", default="", help="this run alone")
    parser.add_argument("--threads", type=int, default=THREADS)
    arguments = parser.parse_args()
    if "SEQLOOM_DATA" not in os.environ:
        sys.exit("set SEQLOOM_DATA to the folder of the real data")
    ONLY, THREADS = arguments.only, arguments.threads
    torch.set_num_threads(THREADS)
    data = Path(os.environ["SEQLOOM_DATA"])
    if arguments.what == "characters":
        characters(data, arguments.out)
    else:
        TIMED[arguments.what](data, arguments.out, arguments.minutes)
