"""SMILES: the tokenizer against a reading by hand, the form of molecules, and random SMILES."""

from __future__ import annotations

import gzip
import json
import logging
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.data import augment
from seqloom.errors import DataError, UserError
from seqloom.text.records import RecordSchema
from seqloom.text.smiles import CHARACTERS, SMILES, problem, random_smiles
from seqloom.text.tokenizer import decode
from seqloom.text.tokenizer_file import parse
from seqloom.world.molecules import WEIGHTS, molecule

MOLECULES = {  # each with its tokens, as a chemist reads them
    "CCO": "C C O",
    "ClCBr": "Cl C Br",
    "c1c[nH]cc1": "c 1 c [nH] c c 1",
    "C[C@@H](N)C(=O)O": "C [C@@H] ( N ) C ( = O ) O",
    "F/C=C\\F": "F / C = C \\ F",
    "C%10CC%10": "C %10 C C %10",
    "[NH4+].[Cl-]": "[NH4+] . [Cl-]",
    "[13CH4]": "[13CH4]",
    "OC1=CC=C(C#N)C=C1I": "O C 1 = C C = C ( C # N ) C = C 1 I",
    "[Si](C)(C)C": "[Si] ( C ) ( C ) C",
    "C%(100)CC%(100)": "C %(100) C C %(100)",
}


@pytest.mark.parametrize("smiles, tokens", MOLECULES.items())
def test_tokens_are_atoms_bonds_and_rings(smiles: str, tokens: str):
    tokenizer = SMILES(MOLECULES)
    encoded = tokenizer.encode(smiles, add_special_tokens=False)
    assert encoded.tokens == tokens.split()
    assert decode(tokenizer, encoded.ids) == smiles


@given(st.text(alphabet=CHARACTERS, max_size=60))
def test_every_string_of_smiles_characters_comes_back(text: str):
    tokenizer = SMILES(["CCO"])
    assert decode(tokenizer, tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_a_new_atom_is_spelt_and_comes_back():
    tokenizer = parse(SMILES(["CCO", "c1cc[nH]c1"]).to_str(), "tokenizer.json")
    encoded = tokenizer.encode(" C[13C@H]([nH])Cl ", add_special_tokens=False)
    assert encoded.tokens == ["C", *"[13C@H]", "(", "[nH]", ")", "Cl"]
    assert decode(tokenizer, encoded.ids) == "C[13C@H]([nH])Cl"


def test_no_molecule_to_learn_from():
    with pytest.raises(DataError, match="no molecule to train a tokenizer on"):
        SMILES([" "])


@pytest.mark.parametrize(
    "smiles, wrong",
    {
        "C[NH": "'[' without its partner",
        "CN]": "']' without its partner",
        "C(C": "'(' that is not closed",
        "CC)": "')' that closes nothing",
        "C1CC": "ring bond 1 is open",
        "C%12CC1": "ring bond 12 is open",
    }.items(),
)
def test_what_is_wrong_with_a_form(smiles: str, wrong: str):
    assert wrong in (problem(smiles) or "")


@pytest.mark.parametrize("smiles", [*MOLECULES, "C1CC1C1CC1", "C%01CC1"])
def test_a_right_form_has_no_problem(smiles: str):
    assert problem(smiles) is None


def test_wrong_molecules_name_their_row(caplog: pytest.LogCaptureFixture):
    schema = RecordSchema(["smiles", "number"], [SMILES(["CCO"])], True, [])
    assert schema.check(("CCO ", "-0.77"), "a.tsv:1") == ["CCO", -0.77]
    with pytest.raises(DataError, match=r"a\.tsv:2: an empty SMILES"):
        schema.check((" ", "1"), "a.tsv:2")
    with pytest.raises(DataError, match=r"a\.tsv:3: 'CCO ethanol' contains a blank"):
        schema.check(("CCO ethanol", "1"), "a.tsv:3")
    with pytest.raises(DataError, match=r"a\.tsv:4: 'high' is not a number"):
        schema.check(("CCO", "high"), "a.tsv:4")
    with caplog.at_level(logging.WARNING, "seqloom"):
        for row in range(5, 10):
            assert schema.check(("C(C", "1"), f"a.tsv:{row}")[0] == "C(C"
    assert [record.getMessage() for record in caplog.records] == [
        "a.tsv:5: a '(' that is not closed in C(C",
        "a.tsv:6: a '(' that is not closed in C(C",
        "a.tsv:7: a '(' that is not closed in C(C; further ones are not reported",
    ]


def test_the_world_s_property_is_a_count():
    for index in range(200):
        smiles, value = molecule(0, index)
        assert problem(smiles) is None and molecule(0, index) == (smiles, value)
        # by hand, in hundredths: chlorine first, so that its C is not counted
        rest, total = smiles, 100
        for atom in sorted(WEIGHTS, key=len, reverse=True):
            total += rest.count(atom) * round(100 * WEIGHTS[atom])
            rest = rest.replace(atom, "")
        digits = sum(character.isdigit() for character in rest)
        assert round(100 * value) == total - 30 * digits // 2


def test_without_rdkit_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    (tmp_path / "a.tsv").write_text("smiles\tvalue\nCCO\t1.5\n")
    with pytest.raises(UserError, match="pip install rdkit"):
        augment(tmp_path / "a.tsv", tmp_path / "b.tsv")
    assert not (tmp_path / "b.tsv").exists()


def test_random_smiles_are_the_same_molecule(tmp_path: Path):
    chemistry = pytest.importorskip("rdkit.Chem")
    found = list(random_smiles("CC(=O)Oc1ccccc1C(=O)O", 5, 7, "row 1"))
    assert len(set(found)) == 5 and found == list(random_smiles("CC(=O)Oc1ccccc1C(=O)O", 5, 7, "row 1"))
    canonical = {chemistry.MolToSmiles(chemistry.MolFromSmiles(text)) for text in found}
    assert canonical == {chemistry.CanonSmiles("CC(=O)Oc1ccccc1C(=O)O")}
    with pytest.raises(DataError, match="row 2: rdkit cannot read"):
        list(random_smiles("C(C)(C)(C)(C)(C)C", 1, 0, "row 2"))
    (tmp_path / "a.csv").write_text("name,smiles,value\nethanol,CCO,1.5\nphenol,Oc1ccccc1,-0.04\n")
    result = augment(tmp_path / "a.csv", tmp_path / "b.csv", copies=2)
    rows = [line.split(",") for line in (tmp_path / "b.csv").read_text().splitlines()]
    assert result.molecules == 2 and result.rows == len(rows) - 1 == 6
    assert {row[2] for row in rows if row[0] == "phenol"} == {"-0.04"}
    assert json.loads(json.dumps(result.to_dict()))["rows"] == 6


@pytest.mark.data
def test_every_molecule_of_esol_comes_back_and_is_closed():
    folder = Path(os.environ.get("SEQLOOM_DATA") or pytest.skip("SEQLOOM_DATA is not set"))
    lines = gzip.decompress((folder / "esol" / "train.tsv.gz").read_bytes()).decode().splitlines()
    molecules = [line.split("\t")[0].strip() for line in lines]
    tokenizer = SMILES(molecules[::2])
    for smiles in molecules:
        assert decode(tokenizer, tokenizer.encode(smiles, add_special_tokens=False).ids) == smiles
        assert problem(smiles) is None
