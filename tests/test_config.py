"""Configs: what a tree means, and the sentence each mistake gets. The parts here are small stand-ins: config knows nothing of seqloom."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from seqloom import config_source, config_tree


class Wheel:
    def __init__(self, size: int, spokes: int = 20, tyre: str = "slick", widths: tuple[float, ...] = ()):
        self.size, self.spokes, self.tyre, self.widths = size, spokes, tyre, widths


class Disc(Wheel):
    def __init__(self, size: int):
        super().__init__(size, 0)


class Motor:
    def __init__(self, power: float = 1.0, mode: Literal["eco", "sport"] = "eco", quiet: bool = False):
        self.power, self.mode, self.quiet = power, mode, quiet


class Bike:
    def __init__(
        self,
        size: int,
        wheel: Callable[..., Wheel],
        motor: Callable[..., Motor] | None = None,
        extras: list[str] | None = None,
        spares: list[Callable[..., Wheel]] = (),
        note: Path | None = None,
        anything: Any = None,
    ):
        self.wheel, self.motor, self.extras = wheel(size), motor and motor(), extras
        self.spares, self.note, self.anything = [spare(size) for spare in spares], note, anything


def assemble(size: int, wheel: Callable[..., Wheel] = Wheel) -> Bike:
    return Bike(size, wheel)


NAMES = {"Wheel": Wheel, "Disc": Disc, "Motor": Motor, "Bike": Bike, "assemble": assemble}


def read(tmp_path: Path, text: str) -> tuple[config_tree.Tree, config_tree.Locations]:
    path = tmp_path / "bike.yaml"
    path.write_text(text, "utf-8")
    return config_tree.read(path)


def build(tmp_path: Path, text: str, section: str = "bike") -> config_tree.PartFactory:
    tree, lines = read(tmp_path, text)
    return config_tree.build(tree[section], NAMES, section, lines)


# What a tree means


def test_a_tree_is_a_partial_of_partials(tmp_path):
    made = build(
        tmp_path, "bike:\n  type: Bike\n  wheel: {type: Wheel, spokes: 8}\n  motor: {type: Motor, power: 2}\n"
    )
    assert isinstance(made, partial) and made.func is Bike
    bike = made(26)
    assert (bike.wheel.size, bike.wheel.spokes, bike.motor.power) == (26, 8, 2.0)
    assert isinstance(bike.motor.power, float)


def test_a_bare_name_is_short_for_its_type(tmp_path):
    assert isinstance(build(tmp_path, "bike: {type: Bike, wheel: Disc}")(26).wheel, Disc)


def test_a_function_is_a_part_by_what_it_returns(tmp_path):
    assert isinstance(build(tmp_path, "bike: {type: assemble, wheel: Disc}")(3).wheel, Disc)


def test_null_leaves_an_optional_part_out(tmp_path):
    assert build(tmp_path, "bike: {type: Bike, wheel: Disc, motor: null}")(1).motor is None


def test_lists_hold_values_and_parts(tmp_path):
    bike = build(
        tmp_path,
        "bike: {type: Bike, wheel: Disc, extras: [bell, lamp], spares: [Disc, {type: Wheel, spokes: 3}]}",
    )(9)
    assert bike.extras == ["bell", "lamp"]
    assert [type(spare) for spare in bike.spares] == [Disc, Wheel] and bike.spares[1].spokes == 3


def test_one_value_is_a_list_of_one(tmp_path):
    assert build(tmp_path, "bike: {type: Bike, wheel: Disc, extras: bell}")(9).extras == ["bell"]


def test_a_tuple_stays_a_tuple(tmp_path):
    assert build(tmp_path, "bike: {type: Wheel, widths: [1, 2.5]}")(9).widths == (1.0, 2.5)


def test_paths_are_paths(tmp_path):
    assert build(tmp_path, "bike: {type: Bike, wheel: Disc, note: a/b}")(9).note == Path("a/b")


@pytest.mark.parametrize(
    "written, value",
    [("1e-3", 0.001), ("1E3", 1000.0), ("-2.5e+4", -25000.0), (".5e1", 5.0), ("7", 7.0), ("1_000", 1000.0)],
)
def test_numbers_as_people_write_them(tmp_path, written, value):
    assert build(tmp_path, f"bike: {{type: Motor, power: {written}}}")().power == value
    assert config_source.override({}, [f"power={written}"])["power"] == value


@pytest.mark.parametrize("text", ["1e-3", "2024.1", "5"])
def test_quoted_numbers_are_text(tmp_path, text):
    assert build(tmp_path, f"bike: {{type: Wheel, tyre: '{text}'}}")(1).tyre == text


def test_a_whole_float_is_a_whole_number(tmp_path):
    spokes = build(tmp_path, "bike: {type: Wheel, spokes: 1e2}")(1).spokes
    assert spokes == 100 and isinstance(spokes, int)


# Mistakes: each names the line, the thing, and what to do


MISTAKES = {
    "unknown part": (
        "bike:\n  type: Bicycle\n",
        "bike.yaml:2: bike.type: no part is called 'Bicycle'; choose from .*Bike",
    ),
    "misspelt part": (
        "bike:\n  type: Whel\n",
        "bike.yaml:2: bike.type: no part is called 'Whel'; did you mean 'Wheel'?",
    ),
    "part in small letters": ("bike:\n  type: wheel\n", "did you mean 'Wheel'?"),
    "misspelt option": (
        "bike:\n  type: Wheel\n  spoke: 3\n",
        "bike.yaml:3: bike.spoke: Wheel has no option 'spoke'; did you mean 'spokes'?",
    ),
    "foreign option": (
        "bike:\n  type: Disc\n  spokes: 3\n",
        "bike.yaml:3: bike.spokes: Disc has no option 'spokes'; choose from size",
    ),
    "deep misspelt option": (
        "bike:\n  type: Bike\n  wheel:\n    type: Wheel\n    tire: x\n",
        "bike.yaml:5: bike.wheel.tire: .*did you mean 'tyre'?",
    ),
    "option of a listed part": (
        "bike:\n  type: Bike\n  spares:\n  - Disc\n  - type: Wheel\n    spoke: 1\n",
        r"bike.yaml:6: bike.spares\[1\].spoke: .*'spokes'",
    ),
    "value in a list": (
        "bike:\n  type: Bike\n  extras:\n  - bell\n  - 3\n",
        r"bike.yaml:5: bike.extras\[1\]: expected text, not 3",
    ),
    "part in the wrong place": (
        "bike:\n  type: Bike\n  wheel: {type: Motor}\n",
        "bike.yaml:3: bike.wheel.type: Motor cannot be used here; choose from Disc, Wheel",
    ),
    "no type": ("bike:\n  spokes: 3\n", "bike.yaml:1: bike: has no `type`; choose one of"),
    "type is a list": ("bike: {type: [Wheel]}\n", r"bike.yaml:1: bike.type: no part is called \['Wheel'\]"),
    "type is a mapping": ("bike: {type: {a: 1}}\n", "bike.yaml:1: bike.type: no part is called"),
    "type is nothing": ("bike: {type: }\n", "bike.yaml:1: bike.type: no part is called None"),
    "number for a part": (
        "bike: {type: Bike, wheel: 3}\n",
        "bike.yaml:1: bike.wheel: expected {type: Name, …}, not 3",
    ),
    "nothing for a part": ("bike: {type: Bike, wheel: }\n", "bike.wheel: expected {type: Name, …}, not None"),
    "text for a number": (
        "bike: {type: Wheel, spokes: many}\n",
        "bike.spokes: expected a whole number, not 'many'",
    ),
    "fraction for a whole number": (
        "bike: {type: Wheel, spokes: 2.5}\n",
        "bike.spokes: expected a whole number, not 2.5",
    ),
    "truth for a number": (
        "bike: {type: Wheel, spokes: true}\n",
        "bike.spokes: expected a whole number, not True",
    ),
    "number for truth": ("bike: {type: Motor, quiet: 1}\n", "bike.quiet: expected true or false, not 1"),
    "text for a fraction": (
        "bike: {type: Motor, power: fast}\n",
        "bike.power: expected a number, not 'fast'",
    ),
    "number for text": ("bike: {type: Wheel, tyre: 3}\n", "bike.tyre: expected text, not 3"),
    "not one of the choices": (
        "bike: {type: Motor, mode: turbo}\n",
        "bike.mode: 'turbo' is not one of eco, sport",
    ),
    "a key that is no text": (
        "bike: {type: Motor, 3: turbo}\n",
        "bike.3: Motor has no option 3; choose from",
    ),
}


@pytest.mark.parametrize("text, sentence", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_gets_its_sentence(tmp_path, text, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        build(tmp_path, text)
    assert "\n" not in str(caught.value) and "bike.yaml" in str(caught.value)


def test_what_the_parent_gives_is_not_an_option(tmp_path):
    made = build(tmp_path, "bike:\n  type: Bike\n  wheel:\n    type: Wheel\n    size: 3\n")
    with pytest.raises(
        ValueError,
        match=r"bike.yaml:3: bike.wheel.size is set by the part around Wheel; remove it",
    ):
        made(26)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"bike.yaml:1: bike: Bike needs wheel; add it"):
        build(tmp_path, "bike: {type: Bike}")(26)


def test_a_part_that_does_not_take_what_it_is_given_cannot_stand_there(tmp_path):
    with pytest.raises(
        ValueError, match=r"bike.yaml:1: bike: Disc cannot be used here: it has no parameter memory"
    ):
        build(tmp_path, "bike: {type: Disc}")(26, memory=3)


OVERRIDDEN = {
    "bike.spoke=3": "'bike.spoke=3': bike.spoke: Wheel has no option 'spoke'; did you mean 'spokes'?",
    "bike={type: Motor, power: fast}": "'bike={type: Motor, power: fast}': bike.power: expected a number, not 'fast'",
    "bike.type=Whel": "'bike.type=Whel': bike.type: no part is called 'Whel'",
    "bike.tyre=old": "bike.yaml:3: bike.spokes: expected a whole number, not 'many'",
}


@pytest.mark.parametrize("change, sentence", OVERRIDDEN.items(), ids=OVERRIDDEN)
def test_a_mistake_in_an_override_is_shown_there(tmp_path, change, sentence):
    (tmp_path / "bike.yaml").write_text(
        f"bike:\n  type: Wheel\n  spokes: {'many' if 'tyre' in change else 3}\n"
    )
    tree, lines = config_tree.read(tmp_path / "bike.yaml")
    with pytest.raises(ValueError, match=re.escape(sentence)):
        config_tree.build(
            config_source.override(tree, [change])["bike"],
            NAMES,
            "bike",
            config_tree.Locations(lines.source, lines.lines, {change.partition("=")[0]: change}),
        )


# Files


WRONG_FILES = {
    "empty": ("", "a config is a mapping of sections, not empty"),
    "a list": ("- a\n- b\n", "a config is a mapping of sections, not"),
    "plain text": ("hello", "a config is a mapping of sections, not 'hello'"),
    "unclosed": ("a: 1\nb: [1, 2\n", r"bike.yaml:\d: not valid YAML"),
    "tab": ("a:\n\tb: 1\n", r"bike.yaml:2: not valid YAML"),
    "two documents": ("a: 1\n---\nb: 2\n", r"bike.yaml:\d: not valid YAML"),
    "control characters": ("a: \x01\n", r"bike.yaml: not valid YAML \(special characters are not allowed\)"),
    "python object": (
        "a: !!python/object:os.system [ls]\n",
        r"bike.yaml:1: not valid YAML \(could not determine a constructor",
    ),
    "python call": ("a: !!python/object/apply:os.system ['touch hacked']\n", r"bike.yaml:1: not valid YAML"),
    "python name": ("a: 1\nb: !!python/name:os.system\n", r"bike.yaml:2: not valid YAML"),
    "no date": ("a: 2024-13-45\n", r"bike.yaml: not valid YAML .*quotes"),
    "said twice": ("a: 1\nb:\n  c: 1\n  c: 2\n", r"bike.yaml:4: not valid YAML \(c is given twice\)"),
    "an anchor": (
        "a: &x {b: 1}\nc: *x\n",
        r"bike.yaml:2: not valid YAML \(\*x refers to an anchor; write its value out\)",
    ),
    "an endless anchor": ("a: &x {b: *x}\n", r"bike.yaml:1: not valid YAML"),
    "deep nesting": ("a: " + "[" * 20000, "nested too deep"),
    "deep mappings": ("a: " + "{b: " * 20000, "nested too deep"),
}


@pytest.mark.parametrize("text, sentence", WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_wrong_file_gets_its_sentence(tmp_path, text, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_bomb_of_anchors_is_refused(tmp_path):
    """Ten levels of nine references each would be three and a half thousand million values."""
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 11))
    with pytest.raises(ValueError, match=r"bike.yaml:2: .*anchor"):
        read(tmp_path, bomb)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match="no such config"):
        config_tree.read(tmp_path / "none.yaml")
    with pytest.raises(ValueError, match="not a regular file; give a YAML file"):
        config_tree.read(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: caf\xe9\n")
    with pytest.raises(ValueError, match="cannot be read"):
        config_tree.read(tmp_path / "latin.yaml")


TREE = {
    "bike": {"type": "Bike", "wheel": "Disc", "spares": ["Disc", {"type": "Wheel", "spokes": 3}]},
    "rate": 1e-05,
    "texts": ["1e-3", "é", "true", "null", "2024-01-01", "a: b", " x", ""],
    "none": None,
}


def test_what_is_written_is_read_back(tmp_path):
    assert read(tmp_path, config_tree.write(TREE))[0] == TREE


def test_a_value_that_stands_twice_is_written_twice(tmp_path):
    shared = ["a"]
    assert read(tmp_path, config_tree.write({"x": shared, "y": shared}))[0] == {"x": ["a"], "y": ["a"]}


# Overrides and differences


def test_an_override_changes_a_copy():
    changed = config_source.override(
        TREE, ["bike.wheel={type: Wheel, spokes: 4}", "bike.motor.power=1e2", "rate=3", "bike.extras=[a, b]"]
    )
    assert changed["bike"] == {
        **TREE["bike"],
        "wheel": {"type": "Wheel", "spokes": 4},
        "motor": {"power": 100.0},
        "extras": ["a", "b"],
    }
    assert changed["rate"] == 3 and TREE["rate"] == 1e-05 and TREE["bike"]["wheel"] == "Disc"


def test_an_override_reaches_into_a_bare_name():
    assert config_source.override({"wheel": "Wheel"}, ["wheel.spokes=3"]) == {
        "wheel": {"type": "Wheel", "spokes": 3}
    }


@pytest.mark.parametrize(
    "assignment, sentence",
    [
        ("spokes", "a change is path=value"),
        ("=3", "a change is path=value"),
        ("rate=[1", "not valid YAML"),
        ("rate.more=1", "which has no options"),
        ("rate=" + "[" * 20000, "nested too deep"),
        ("rate=[&x 1, *x]", "anchor"),
        ("rate=!!python/name:os.system", "not valid YAML"),
    ],
)
def test_a_wrong_override_gets_its_sentence(assignment, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        config_source.override(TREE, [assignment])
    assert len(str(caught.value)) < 300


def test_a_difference_names_each_place_once():
    old, new = {"a": {"b": 1, "c": 2}, "d": 1}, {"a": {"b": 1, "c": 3, "e": None}, "f": [1]}
    assert config_tree.diff(old, new) == ["a.c: 2 → 3", "a.e: None → None", "d: 1 → None", "f: None → [1]"]
    assert config_tree.diff(TREE, config_source.deep_copy(TREE)) == []
