"""Parallel text that does not line up is suspected, at the right line; text that does is not."""

import random

import pytest

from seqloom import world
from seqloom.text.corpus import Parallel
from seqloom.text.pair_checks import find_shift, looks_swapped, same_language, similarity, trigram_profile
from seqloom.text.summary import describe

SCENES = list(world.scenes(400))
ENGLISH = [scene.english for scene in SCENES]
FRENCH = [scene.french for scene in SCENES]


def numbered(count, seed=0):
    """Pairs that share numbers and names, as news does."""
    chance = random.Random(seed)
    names = ["Anna", "Berlin", "Paul", "Oslo", "Peter", "Rome"]
    pairs = []
    for _ in range(count):
        name, number, words = chance.choice(names), str(chance.randint(1, 2000)), chance.randint(1, 9)
        pairs.append((f"{name} has {number} " + "cats " * words, f"{name} a {number} " + "chats " * words))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


@pytest.mark.parametrize("start", [0, 57, 300])
@pytest.mark.parametrize("texts", [(ENGLISH, FRENCH), numbered(400)])
def test_a_missing_line_is_found(texts, start):
    sources, targets = texts
    found = find_shift(sources[:-1], targets[:start] + targets[start + 1 :])
    assert found is not None and found.lines == -1 and abs(found.start - start) <= 4
    found = find_shift(sources[:start] + sources[start + 1 :], targets[:-1])
    assert found is not None and found.lines == 1 and abs(found.start - start) <= 4


def test_aligned_and_unrelated_text_is_not_suspected():
    assert find_shift(ENGLISH, FRENCH) is None
    assert find_shift(*numbered(400)) is None
    for seed in range(20):
        shuffled = random.Random(seed).sample(FRENCH, len(FRENCH))
        assert find_shift(ENGLISH, shuffled) is None
    assert find_shift(["same"] * 50, ["same"] * 50) is None
    assert find_shift([""] * 50, [""] * 50) is None
    assert find_shift(ENGLISH[:5], FRENCH[1:6]) is None


def test_languages_are_told_apart():
    english, french = trigram_profile(ENGLISH[:200]), trigram_profile(FRENCH[:200])
    assert similarity(english, trigram_profile(ENGLISH[200:])) > 0.9 > 0.6 > similarity(english, french)
    assert same_language(ENGLISH[:200], ENGLISH[200:]) and not same_language(ENGLISH, FRENCH)
    assert looks_swapped([english, french], FRENCH[200:]) and not looks_swapped(
        [english, french], ENGLISH[200:]
    )
    assert not looks_swapped([english, english], FRENCH)
    assert not looks_swapped([english, french], ["oui"]) and similarity({}, english) == 0


def write(folder, sources, targets):
    paths = [folder / "a.en", folder / "a.fr"]
    for path, lines in zip(paths, (sources, targets), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return Parallel(paths, drop_blank=True)


def test_a_summary_of_pairs_names_blank_sides_and_the_shift(tmp_path):
    targets = [*FRENCH[:100], "", *FRENCH[101:200], *FRENCH[201:]]
    summary = describe(write(tmp_path, ENGLISH[:-1], targets))
    assert summary.blank == 1 and summary.records == 398
    assert summary.first_blank == [f"{tmp_path}/a.en:101"]
    line = int(summary.warnings[0].split(":")[1])
    assert abs(line - 201) <= 4 and "the target seems to be 1 line earlier" in summary.warnings[0]
    assert f"1 pair with a blank side is left out: {tmp_path}/a.en:101" in summary.lines()
    assert describe(write(tmp_path, ENGLISH, FRENCH)).warnings == []
    assert "same language" in describe(write(tmp_path, ENGLISH[:200], ENGLISH[200:])).warnings[0]
    twice = Parallel([tmp_path / "a.en", tmp_path / "a.en"])
    assert describe(twice).warnings == [
        f"{tmp_path}/a.en: the same file twice, as source and as target; give two files"
    ]
