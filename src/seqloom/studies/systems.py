"""The systems of a comparison, as a command line names them: presets, YAML files, finished runs, and named sets of systems.

A change such as model.dim=64 belongs to the system before it, or to all systems if it comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from seqloom.config_source import is_run, preset_names
from seqloom.errors import UserError
from seqloom.studies.published import TABLE2

CHANGE = re.compile(r"[a-z_0-9]+(\.[a-z_0-9]+)*=.*", re.DOTALL)
FEATURES = {
    "bag of words": "{type: Counts}",
    "TF-IDF": "{type: TFIDF}",
    "SVD of TF-IDF": "{type: SVD}",
    "PPMI-SVD": "{type: MeanVectors, method: ppmi-svd}",
    "skip-gram": "{type: MeanVectors, method: skip-gram}",
    "CBOW": "{type: MeanVectors, method: cbow}",
    "GloVe": "{type: MeanVectors, method: glove}",
}


class System(NamedTuple):
    """One row of a comparison. `source` is a preset, a YAML file, or the folder of a finished run, which is only measured."""

    title: str
    source: str
    changes: tuple[str, ...] = ()
    is_finished: bool = False

    @property
    def folder_name(self) -> str:
        """The title as the name of a folder."""
        return re.sub(r"[^\w.+-]+", "-", self.title).strip("-.") or "system"


def classical() -> list[System]:
    """Naive Bayes, logistic and softmax regression over every feature set  [B4]."""
    return [
        System(f"{preset}, {name}", preset, (f"model.features={features}",))
        for name, features in FEATURES.items()
        for preset in ("naive-bayes", "logistic", "softmax")
    ]


STUDIES = {"table2": lambda: [System(name, name) for name in TABLE2], "classical": classical}


EXAMPLES = {
    ("text",): "gpt lstm-lm",
    ("text", "label"): "classifier naive-bayes",
    ("text", "text"): "transformer rnnsearch",
    ("words", "tags"): "tagger tagger-transformer",
}


def no_system(kinds: Sequence[str], files: str) -> str:
    """That a comparison needs systems, with an example for records of these kinds."""
    example = EXAMPLES.get(tuple(kinds), EXAMPLES["text",])
    return (
        f"no system: give presets (see: seqloom presets), YAML files, finished runs, or a study ({', '.join(STUDIES)}), "
        f"as in: seqloom compare {example} --data {files}"
    )


def parse_systems(words: Iterable[str]) -> list[System]:
    """The systems that the words name, each with its changes and a title of its own."""
    shared: list[str] = []
    systems: list[System] = []
    group = 0  # the systems from here on have the next change: one system, or all of a named set
    for word in words:
        if CHANGE.fullmatch(word):
            if not systems:
                shared.append(word)
            systems[group:] = [system._replace(changes=(*system.changes, word)) for system in systems[group:]]
            continue
        group = len(systems)
        if word in STUDIES:
            systems += STUDIES[word]()
        elif word not in preset_names() and is_run(word):
            systems.append(System(word, str(Path(word)), is_finished=True))
        else:
            systems.append(System(Path(word).stem, word))
    for system in systems:
        if system.is_finished and (system.changes or shared):
            change = (*system.changes, *shared)[0]
            raise UserError(
                f"{system.source}: {change} cannot change a finished run; compare its preset with the change"
            )
    if not systems:
        raise UserError(no_system(("text",), "input.txt"))
    return with_titles(
        [system._replace(changes=(*shared, *system.changes)) for system in systems], len(shared)
    )


def with_titles(systems: Sequence[System], num_shared: int) -> list[System]:
    """The systems with titles that differ: the shortest distinct part of a run's path, the last part of a change's name."""
    names = shortest_names([system.source for system in systems if system.is_finished])
    result: list[System] = []
    for system in systems:
        title = names.get(system.source, system.title)
        own = [] if "," in system.title else [change.split(".")[-1] for change in system.changes[num_shared:]]
        result.append(system._replace(title=" ".join([title, *own])))
    titles = [system.title for system in result]
    for title in titles:
        if titles.count(title) > 1:
            raise UserError(f"{title} is given twice; give each system once, or change one of them")
    return result


def shortest_names(paths: Sequence[str]) -> dict[str, str]:
    """Each path by the shortest end of it that no other path has."""
    parts = {path: Path(path).parts for path in paths}
    names = {}
    for path, own in parts.items():
        length = 1
        others = [other for key, other in parts.items() if key != path]
        while length < len(own) and any(other[-length:] == own[-length:] for other in others):
            length += 1
        names[path] = "/".join(own[-length:])
    return names
