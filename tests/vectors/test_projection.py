"""The map is one page that needs nothing else; places, clusters and neighbours are those of scikit-learn, numpy and a plain sort."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

from seqloom.vectors.projection import kmeans_labels, pca, tsne_layout, write_map
from seqloom.vectors.vectors import Vectors


def some(count: int = 60) -> Vectors:
    """Three groups of words, each about a direction of its own."""
    rng = np.random.default_rng(0)
    centres = np.eye(8)[:3] * 3
    matrix = np.concatenate([centre + 0.3 * rng.normal(size=(count // 3, 8)) for centre in centres]).astype(
        np.float32
    )
    words = [f"word{number}" for number in range(count)]
    words[1] = "</script><b>&é\u2028"
    return Vectors(words, matrix)


def content(path: Path) -> dict:
    return json.loads(re.search(r"^const data = (.*);$", path.read_text("utf-8"), re.M).group(1))


def test_principal_components_equal_scikit_learn():
    units = some().matrix / np.linalg.norm(some().matrix, axis=1, keepdims=True)
    places, share = pca(units)
    theirs = PCA(2).fit(units)
    np.testing.assert_allclose(np.abs(places), np.abs(theirs.transform(units)), atol=1e-5)
    assert share == pytest.approx(theirs.explained_variance_ratio_.sum(), abs=1e-5)


def test_groups_are_found_by_clusters_and_kept_together_by_tsne():
    units = some().matrix / np.linalg.norm(some().matrix, axis=1, keepdims=True)
    assert kmeans_labels(units, 3, 0).tolist() == [0] * 20 + [1] * 20 + [2] * 20
    places = tsne_layout(units, 0)
    nearest = ((places[:, None] - places[None]) ** 2).sum(-1)
    np.fill_diagonal(nearest, np.inf)
    assert (nearest.argmin(1) // 20 == np.arange(60) // 20).mean() > 0.95


@pytest.mark.parametrize("tsne", [False, True])
def test_the_page_is_whole_and_asks_the_network_for_nothing(tsne: bool, tmp_path: Path):
    vectors = some()
    report = write_map(vectors, tmp_path / "map.html", limit=45, tsne=tsne, clusters=3)
    text, data = (tmp_path / "map.html").read_text("utf-8"), content(tmp_path / "map.html")
    assert (
        text.count("</script>") == 1
        and "http" not in text
        and "src=" not in text
        and "/*DATA*/" not in text
        and len(text) < 100_000
    )
    assert data["words"] == list(vectors.words[:45]) and report.words == 45 and report.total == 60
    assert list(data["layouts"]) == ["principal components", *(["t-SNE"] if tsne else [])] == report.layouts
    for places in data["layouts"].values():
        assert (
            np.array(places).shape == (45, 2)
            and np.array(places).min() >= 0
            and np.array(places).max() <= 10_000
        )
    near = vectors.first(45).nearest("word7", 10)
    assert [data["words"][row] for row in data["near"][7]] == [word for word, _ in near]
    assert data["cosines"][7] == [round(score * 100) for _, score in near]


def test_few_words_and_one_number_still_make_a_map(tmp_path: Path):
    write_map(Vectors(["a", "b", "c"], np.array([[1.0], [2], [-3]])), tmp_path / "map.html", tsne=True)
    assert len(content(tmp_path / "map.html")["near"][0]) == 2
    with pytest.raises(ValueError, match="three words"):
        write_map(Vectors(["a", "b"], np.eye(2)), tmp_path / "other.html")
    with pytest.raises(ValueError, match="one cluster or more"):
        write_map(some(), tmp_path / "other.html", clusters=0)


def test_no_word_of_the_picture_ends_beyond_its_edge(tmp_path: Path):
    rows = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    words = [f"{'word' * 5}{index}" for index in range(200)]
    write_map(Vectors(words, rows), tmp_path / "map.svg", clusters=2)
    picture = (tmp_path / "map.svg").read_text("utf-8")
    width = float(re.search(r'viewBox="0 0 (\d+)', picture)[1])
    shown = re.findall(r'<text x="([\d.-]+)" y="[\d.]+" fill="hsl[^>]*>(\w+)</text>', picture)
    assert shown and all(float(x) >= 0 and float(x) + 7 * len(word) <= width for x, word in shown)
