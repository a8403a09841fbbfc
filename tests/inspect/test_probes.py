"""Tokens, contexts of a word, search trees and the coreference probe against independent computations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from seqloom.decoding.forced import forced_log_probs
from seqloom.errors import UserError
from seqloom.fused.dispatch import plain
from seqloom.inference.completion import prepare_prompt
from seqloom.inspect.coreference_probe import PRONOUN, ask, coreference, minimal_pairs, scene_of
from seqloom.inspect.head_pages import coreference_page
from seqloom.inspect.search_pages import beam_page
from seqloom.inspect.search_tree import beam
from seqloom.inspect.token_list import tokens
from seqloom.inspect.vector_pages import contexts_page
from seqloom.inspect.word_contexts import around, contexts, shared_words
from seqloom.run import Run
from seqloom.run_config import Config
from seqloom.world import describe, write

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
TIRED = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def world_runs(tmp_path_factory):
    """Small translators with random weights and a tokenizer that knows the words of the world."""
    folder = tmp_path_factory.mktemp("world")
    write(folder, train=300, valid=20, test=10)
    data = [str(folder / f"train.{language}") for language in ("en", "fr")]
    small = {
        "transformer": ["model.encoder.layers=2", "model.decoder.layers=2"],
        "rnnsearch": ["model.encoder.dim=16", "model.decoder.dim=16", "model.decoder.attention.dim=16"],
    }

    def build(name: str) -> Run:
        config = Config.load(name, [*small[name], "model.dim=16", "tokenizer.size=400"], data)
        tokenizer = config.tokenizer()
        torch.manual_seed(0)
        return Run(folder, config, tokenizer, config.model(tokenizer.get_vocab_size()).eval())

    return build


@pytest.mark.parametrize("name", ["gpt", "gpt2", "bert", "transformer", "marian", "lstm-words", "tagger"])
def test_tokens_are_those_that_the_model_reads(runs, name: str):
    run = runs(name)
    text = "the old cat sees"
    found = tokens(run, text)
    assert [token.id for token in found.tokens] == run.encode([text])[0][0].tolist()
    for token in found.tokens:
        assert run.tokenizer.token_to_id(token.piece) == token.id
        if token.start is not None:
            assert text[token.start : token.end] == token.text
    covered = {
        place for token in found.tokens if token.start is not None for place in range(token.start, token.end)
    }
    assert covered >= {place for place, letter in enumerate(text) if letter != " "}


def test_static_vectors_of_a_word_are_rows_of_the_table_that_transformers_reads(runs):
    from transformers import AutoModel

    run = runs("gpt2")
    texts = ["the cat sees", "a cat", "no such word", "old cat runs"]
    found = contexts(run, "cat", texts)
    assert [one.text for one in found.contexts] == [texts[0], texts[1], texts[3]]
    theirs = AutoModel.from_pretrained(run.folder).eval()
    expected = []
    for one in found.contexts:
        encoding = run.tokenizer.encode(one.text, add_special_tokens=False)
        at = [i for i, (a, b) in enumerate(encoding.offsets) if a < one.end and b > one.start]
        at = [i + len(run.specials.before) for i in at]
        static = theirs.wte.weight[run.encode([one.text])[0][0, at]].mean(0).detach().numpy()
        expected.append(static)
    assert np.allclose(found.static_vectors, expected, atol=1e-5)


def test_the_map_is_that_of_principal_component_analysis(runs):
    run = runs("lstm-words")
    texts = [f"the {word} cat sees a river" for word in ("old", "big", "red", "sad")] + [
        "a cat",
        "the cat sees",
    ]
    found = contexts(run, "cat", texts)
    pca = PCA(2).fit(found.vectors)
    expected = pca.transform(found.vectors)
    ours = np.array([[one.x, one.y] for one in found.contexts])
    assert np.allclose(np.abs(ours), np.abs(expected), atol=1e-5)
    assert found.variance_explained == pytest.approx(pca.explained_variance_ratio_, abs=1e-6)
    unit = found.vectors / np.linalg.norm(found.vectors, axis=1, keepdims=True)
    for number, one in enumerate(found.contexts):
        cosines = [-2 if other == number else unit[number] @ unit[other] for other in range(len(unit))]
        assert one.nearest_cosine == pytest.approx(max(cosines)) == pytest.approx(cosines[one.nearest])
    assert found.static_mean_cosine == pytest.approx(1) and found.mean_cosine < 1
    assert "<svg" in contexts_page(found)


def test_a_word_that_is_not_there_and_a_layer_that_is_not_there(runs):
    with pytest.raises(UserError, match="occurs in 0 of 2 texts"):
        contexts(runs("gpt"), "king", ["a cat", "a dog"])
    with pytest.raises(UserError, match=r"no layer has this name; the layers are embedding"):
        contexts(runs("gpt"), "cat", ["a cat", "the cat"], layer="nothing")
    with pytest.raises(UserError, match="the word is empty"):
        contexts(runs("gpt"), " ", ["a cat", "the cat"])


@pytest.mark.parametrize("name", ["transformer", "rnnsearch", "gpt", "lstm"])
def test_a_search_tree_has_the_search_that_was_made(runs, name: str):
    run = runs(name)
    found = beam(run, "the cat", beam=3, max_tokens=6)
    assert 1 <= len(found.steps) <= 6 and found.beam == 3
    for before, step in zip((None, *found.steps), found.steps, strict=False):
        assert sum(one.status == "lives" for one in step) <= 3
        assert [one.rank for one in step] == sorted(one.rank for one in step)
        for one in step:
            if before is None:
                assert one.parent is None
            else:
                parent = before[one.parent]
                assert parent.status == "lives" and parent.logprob >= one.logprob - 1e-4
    outcomes = [one for step in found.steps for one in step if one.status == "outcome"]
    assert any(one.logprob == pytest.approx(found.logprob, abs=1e-4) for one in outcomes)
    page = beam_page(found)
    assert page.count("<text class=") == sum(map(len, found.steps))


def test_a_target_falls_off_where_the_report_says(runs):
    run = runs("transformer")
    answer = beam(run, "the cat", beam=2)
    for target in ("tac eht", "a tac dlo sees", "god"):
        found = beam(run, "the cat", target, beam=2, branches=10_000)
        assert found.answer == answer.answer and found.why is not None
        ids = [*run.tokenizer.encode(target, add_special_tokens=False).ids, run.specials.eos]
        [forced] = forced_log_probs(
            run.model, *prompt_and_text(run, "the cat", ids[:-1]), eos_id=run.specials.eos
        )
        for step, branches in enumerate(found.steps[: len(ids)]):
            for one in branches:
                if one.asked:
                    assert one.logprob == pytest.approx(sum(forced[: step + 1]), abs=1e-3)
        if found.why["fell_at"] is not None:
            asked = [[one for one in step if one.asked] for step in found.steps]
            assert asked[found.why["fell_at"] - 1][0].status == "pruned"
            assert not any(step for step in asked[found.why["fell_at"] :])


def prompt_and_text(run: Run, source: str, ids: list[int]):
    prompt, state, mask = prepare_prompt(run, *run.encode([source]))
    return prompt, [ids], state, mask


def test_a_model_that_does_not_generate_has_no_search(runs):
    with pytest.raises(UserError, match="no search"):
        beam(runs("bert"), "the cat")
    with pytest.raises(UserError, match="empty"):
        beam(runs("gpt"), " ")


def test_minimal_pairs_differ_in_one_word_and_in_the_pronoun():
    pairs = list(minimal_pairs(8, 0))
    assert len(pairs) == 8
    for one, other in pairs:
        assert one.english.split()[:-1] == other.english.split()[:-1] and one.english != other.english
        assert describe(one.english).antecedent != describe(other.english).antecedent
        pronouns = {PRONOUN.search(describe(scene.english).french)[1] for scene in (one, other)}
        assert pronouns == {"il", "elle"}


@pytest.mark.parametrize("name", ["transformer", "rnnsearch"])
def test_the_decision_is_that_of_forced_decoding_and_edges_are_those_of_hidden_keys(world_runs, name: str):
    run = world_runs(name)
    found = coreference(run, [TIRED], pairs=2)
    decision = found.decisions[0]
    assert (decision.right, decision.wrong, decision.meant) == ("il", "elle", "animal")
    totals = []
    for pronoun in ("il", "elle"):
        ids = run.tokenizer.encode(f"{decision.french}{pronoun} était", add_special_tokens=False).ids
        [forced] = forced_log_probs(run.model, *prompt_and_text(run, TIRED, ids), eos_id=run.specials.eos)
        totals.append(sum(forced[:-1]))  # without the end
    d = decision.right_logprob - decision.wrong_logprob
    assert d == pytest.approx(totals[0] - totals[1], abs=1e-3)
    assert len(found.decisions) == 5 and found.pairs == 2
    assert found.accuracy == np.mean([one.correct for one in found.decisions])
    assert found.edges and "it" in coreference_page(found)
    if name == "rnnsearch":  # its loop over time hides the key at the step of the pronoun only
        return
    question = ask(run, scene_of(TIRED))
    parts = dict(run.model.named_modules())
    strongest = sorted(found.edges, key=lambda edge: -abs(edge.effect))[:4]
    for edge in strongest:
        score = parts[f"{edge.layer}.score"]
        forward = score.forward
        sources = [i for i, token in enumerate(question.reading.source) if token.strip() == edge.key]
        queries = (
            [i for i, token in enumerate(question.reading.source) if token.strip() == edge.query]
            if edge.reads == "source"
            else [question.place]
        )
        effects = []
        for query in queries:
            for key in sources:

                def hide(q, k, forward=forward, head=edge.head, query=query, key=key):
                    scores = forward(q, k)
                    scores[0, head, query, key] = float("-inf")
                    return scores

                score.forward = hide
                try:
                    with torch.no_grad(), plain():
                        effects.append(float(question.reading.scores(1)) - d)
                finally:
                    del score.forward
        assert min(abs(effect - edge.effect) for effect in effects) < 1e-4


def test_the_probe_refuses_other_models_and_other_sentences(runs):
    with pytest.raises(UserError, match="needs a translator"):
        coreference(runs("gpt"))
    with pytest.raises(UserError, match="not a sentence of the built-in world"):
        coreference(runs("transformer"), ["Colourless green ideas sleep."])
    with pytest.raises(UserError, match="writes il and elle alike"):
        coreference(runs("transformer"))
    with pytest.raises(UserError, match='has no "it"'):
        coreference(runs("transformer"), ["Anna opened an account at the bank."])


def test_contexts_are_grouped_by_a_word_that_is_near():
    texts = [
        "money at the bank",
        "the bank of the river",
        "her money is in a bank",
        "a river without any bank",
        "a bank",
    ]
    bags = [around(text, (text.index("bank"), text.index("bank") + 4)) for text in texts]
    assert shared_words(bags) == ["money", "river", "money", "river", "other"]
    assert around("one bank of many, many, many, many rivers", (4, 8)) == {"many"}
