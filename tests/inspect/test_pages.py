"""Pages in a browser: every picture can be saved, at its size, as SVG and as PNG."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from seqloom.inspect import attention, beam, contexts, gates, geometry, heads, patch, similarity
from seqloom.inspect.head_pages import heads_page
from seqloom.inspect.pages import attention_page, gates_page, heat_table, patch_page
from seqloom.inspect.search_pages import beam_page
from seqloom.inspect.vector_pages import contexts_page, geometry_page, similarity_page

CHROMIUM = shutil.which("chromium")
TEXT = "the old cat sees a river"
TEXTS = [TEXT, "a cat sees the river", "the river sees the old man", "a man sees a cat", "the cat sees"]
# in place of a download, what would be saved is written into the page
INSTEAD = """<script>
const blobs = {};
URL.createObjectURL = (blob) => { const name = `blob:${Object.keys(blobs).length}`; blobs[name] = blob; return name; };
HTMLAnchorElement.prototype.click = async function () {
  const address = this.getAttribute("href"), text = blobs[address] ? await blobs[address].text() : address;
  const note = document.createElement("pre");
  note.className = "saved";
  note.textContent = `${this.download}\\n${text}`;
  document.body.append(note);
};
</script>"""
PRESS = "<script>document.querySelectorAll('.save button, #save, #save-lines').forEach((button) => button.click());</script>"


def saved(page: str, folder: Path) -> dict[str, str]:
    """What the buttons of a page save, by file name."""
    path = folder / "page.html"
    path.write_text(page.replace("<body>", f"<body>{INSTEAD}").replace("</body>", f"{PRESS}</body>"), "utf-8")
    command = [CHROMIUM or "", "--headless", "--no-sandbox", "--virtual-time-budget=10000", "--dump-dom"]
    dom = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=800).stdout
    notes = re.findall(r'<pre class="saved">(.*?)</pre>', dom, re.S)
    return dict(unescape(note).split("\n", 1) for note in notes)


def make_page(runs, name: str) -> str:
    gpt = runs("gpt")
    match name:
        case "attention":
            return attention_page(attention(gpt, "a cat", edges=5), "a cat")
        case "gates":
            return gates_page(gates(runs("lstm"), TEXT), TEXT)
        case "heads":
            return heads_page(heads(gpt, TEXTS[:2]))
        case "geometry":
            return geometry_page([geometry(gpt, TEXTS), geometry(runs("bert"), TEXTS)])
        case "similarity":
            return similarity_page(similarity(gpt, runs("bert"), TEXTS), "a", "b")
        case "contexts":
            return contexts_page(contexts(gpt, "cat", TEXTS))
        case "beam":
            return beam_page(beam(runs("transformer"), TEXT, max_tokens=4))
    return patch_page(patch(gpt, "aa", "ab"), "aa / ab")


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize(
    "name", ["attention", "gates", "heads", "geometry", "similarity", "contexts", "beam", "patch"]
)
def test_every_picture_is_saved_as_svg_and_png(runs, name: str, tmp_path: Path):
    files = saved(make_page(runs, name), tmp_path)
    drawings = {file: text for file, text in files.items() if file.endswith(".svg")}
    images = {file: text for file, text in files.items() if file.endswith(".png")}
    assert drawings and images and (name == "attention" or len(drawings) == len(images))
    for text in drawings.values():
        root = ElementTree.fromstring(text)
        words = "".join(root.itertext())
        assert root.tag.endswith("svg") and words.strip() and "var(--" not in text
    for text in images.values():
        data = base64.b64decode(text.removeprefix("data:image/png;base64,"))
        assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20], "big") > 50


def test_values_below_zero_have_a_sign_and_their_own_colour():
    html = heat_table(["a.b"], ["x", " ", "y", "z"], np.array([[0.5, -0.5, -0.001, np.nan]]), "shares", 1)
    cells = re.findall(r"<td class=heat(?: style=\"(.*?)\")?>(.*?)</td>", html)
    assert [text for _, text in cells] == ["0.50", "−0.50", "0.00", ""]
    assert "--mark) 30%" in cells[0][0] and "--below) 30%" in cells[1][0] and "--mark" in cells[2][0]
    assert "below 0" in html and "␣" in html
    assert "below 0" not in heat_table(["a"], ["x"], np.array([[0.5]]), "shares", 1)
    small = heat_table(["a"], ["x", "y"], np.array([[0.004, -0.002]]), "changes", 0.004)
    assert ">0.0040<" in small and ">−0.0020<" in small


def test_edges_have_a_column_for_the_word_itself_only_where_it_is_measured(runs):
    """An encoder has one score for the whole text, so no edge has an effect at its own word."""
    page = attention_page(attention(runs("encoder"), TEXT, edges=5), TEXT)
    assert "at the word" not in page and '"own":false' in page
    page = attention_page(attention(runs("gpt"), "a cat", edges=5), "a cat")
    assert (
        "<th>at the word</th>" in page
        and "and of the score at the word itself" in page
        and '"own":true' in page
    )


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize(("name", "columns"), [("encoder", 3), ("gpt", 4)])
def test_the_rows_of_edges_have_as_many_cells_as_the_head(runs, name: str, columns: int, tmp_path: Path):
    path = tmp_path / "page.html"
    path.write_text(attention_page(attention(runs(name), "a cat sees", edges=20), "a cat sees"), "utf-8")
    command = [CHROMIUM or "", "--headless", "--no-sandbox", "--virtual-time-budget=5000", "--dump-dom"]
    dom = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=300).stdout
    body = re.search(r'<tbody id="edges">(.*?)</tbody>', dom, re.S)
    assert body is not None
    rows = re.findall(r"<tr>(.*?)</tr>", body[1], re.S)
    assert rows and all(row.count("<td>") == columns for row in rows)
