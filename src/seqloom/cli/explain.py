"""The verb explain: the equations of a model, or how two models differ."""

from __future__ import annotations

from typing import Literal

from seqloom.cli.app import CHANGE, LOOK, app, json_text, print_result
from seqloom.cli.inputs import load_code
from seqloom.cli.options import CodeFiles, Common, CommonOptions, Count, PagePath, What
from seqloom.errors import UserError

ENDINGS: dict[str, Literal["html", "md", "text"]] = {".html": "html", ".md": "md", ".txt": "text"}


@app.command(group=LOOK)
def explain(
    what: What,
    /,
    *more: str,
    vocabulary: Count = 1000,
    format: Literal["auto", "text", "md", "html"] = "auto",
    code: CodeFiles = (),
    out: PagePath = None,
    common: CommonOptions = Common(),
) -> None:
    """Show a model's equations, or where two models differ.

    Each part has its equation, sizes, parameters and FLOPs.

    Examples:
      seqloom explain gpt
      seqloom explain gpt model.stack.position=ALiBi gpt
      seqloom explain runs/gpt-input llama --out differences.html

    Parameters
    ----------
    what
        A run, a preset or a YAML file.
    more
        Changes to it, such as model.stack.layers=4; then, to compare, a second one and changes to that.
    vocabulary
        Tokens of a config that has no tokenizer yet.
    format
        Format of the output; auto: that of --out's ending, else text. html is a page with the equations in MathML.
    code
        Python file whose part classes the config may name.
    out
        File to write: .html, .md or .txt.
    """
    from seqloom.equations import diff
    from seqloom.equations import explain as explain_model
    from seqloom.files import write_atomic

    models: list[tuple[str, list[str]]] = [(what, [])]
    for argument in more:
        if CHANGE.fullmatch(argument):
            models[-1][1].append(argument)
        else:
            models.append((argument, []))
    if len(models) > 2:
        raise UserError(f"{models[2][0]}: explain takes one model, or two to compare: drop the others")
    chosen = format
    if format == "auto":
        if out is not None and out.suffix not in ENDINGS and not common.json:
            raise UserError(
                f"{out}: its ending names no format; end it in .html, .md or .txt, or give --format"
            )
        chosen = "text" if out is None else ENDINGS.get(out.suffix, "text")
    parts = load_code(code)
    found = [explain_model(name, *changes, vocabulary=vocabulary, parts=parts) for name, changes in models]
    result = diff(*found) if len(found) > 1 else found[0]
    if common.json:
        written = json_text(result.to_dict()) + "\n"
    else:
        written = {"html": result.to_html, "md": result.to_markdown}.get(chosen, result.to_text)()
    if out is None:
        print(written, end="", flush=True)
        return
    write_atomic(out, written)
    print_result({"page": str(out)}, [f"page: {out}"], common.json)
