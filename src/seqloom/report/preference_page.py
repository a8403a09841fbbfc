"""An offline page on which a person chooses between two answers; the choices stay in the browser until they are saved as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from seqloom.report.page import escape, page

STYLE = """
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; margin: 1rem 0; }
@media (max-width: 40rem) { .pair { grid-template-columns: 1fr; } }
.answer { border: 1px solid var(--line); border-radius: 8px; padding: 1rem; background: var(--wash); white-space: pre-wrap; cursor: pointer;
          font: inherit; color: inherit; text-align: left; min-height: 6rem; }
.answer:hover, .answer:focus { outline: 2px solid var(--mark); }
.prompt { white-space: pre-wrap; font-size: 1.1rem; } .keys button { margin-right: .5rem; padding: .4rem .8rem; font: inherit; }
"""
SCRIPT = """
const pairs = JSON.parse(document.getElementById("pairs").textContent), key = document.body.dataset.key;
let choices = [];
try { choices = JSON.parse(localStorage.getItem(key) || "[]"); } catch (error) {}
const at = id => document.getElementById(id);
function show() {
  const pair = pairs[choices.length], done = !pair;
  at("count").textContent = choices.length + " of " + pairs.length;
  at("prompt").textContent = done ? "All prompts are judged. Save the file." : pair.text;
  for (const [index, id] of ["one", "two"].entries()) { at(id).textContent = done ? "" : pair.answers[index]; at(id).disabled = done; }
  at("undo").disabled = !choices.length;
}
function choose(choice) {
  if (choices.length < pairs.length) choices.push(choice);
  remember();
}
function undo() { choices.pop(); remember(); }
function remember() { try { localStorage.setItem(key, JSON.stringify(choices)); } catch (error) {} show(); }
function save() {
  const lines = choices.map((choice, index) => {
    const pair = pairs[index], [one, two] = pair.answers;
    return choice === 0 ? null : {number: pair.number, prompt: pair.prompt, chosen: choice === 1 ? one : two, rejected: choice === 1 ? two : one};
  }).filter(Boolean).map(record => JSON.stringify(record) + "\\n").join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines], {type: "application/jsonl"}));
  link.download = document.body.dataset.file;
  link.click();
}
at("one").onclick = () => choose(1); at("two").onclick = () => choose(2); at("tie").onclick = () => choose(0);
at("undo").onclick = undo; at("save").onclick = save;
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if ("120".includes(event.key)) choose(Number(event.key)); else if (event.key === "u") undo(); else if (event.key === "s") save();
});
document.body.dataset.ready = "yes"; show();
"""


def preference_page(pairs: Sequence[dict[str, Any]], title: str, file: str, key: str) -> str:
    """The page; each pair has number, prompt, text and answers. `key` names the choices in the browser's storage."""
    data = json.dumps(list(pairs), ensure_ascii=False).replace("<", "\\u003c")
    body = (
        f"<h1>{escape(title)}</h1><p class=soft>Which answer is better? Keys: 1, 2, 0 for a tie, u to undo, s to save. "
        "Nothing leaves this browser.</p><p class=soft id=count></p><p class=prompt id=prompt></p>"
        "<div class=pair><button class=answer id=one></button><button class=answer id=two></button></div>"
        "<p class=keys><button id=tie>0: a tie</button><button id=undo>u: undo</button><button id=save>s: save</button></p>"
        f'<script type="application/json" id=pairs>{data}</script>'
    )
    setup = f"document.body.dataset.key = {json.dumps(key)}; document.body.dataset.file = {json.dumps(file)};".replace(
        "<", "\\u003c"
    )
    return page(title, body, setup + SCRIPT, STYLE)
