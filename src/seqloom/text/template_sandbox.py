"""Renders chats with a Jinja template that may be hostile. Run as a program it is a child process with limits: a template can take
neither more memory nor more time than it is given, and it sees nothing but the chats.

The environment is that of `transformers`, so that templates render alike: blocks are trimmed, loops have break and continue, there are
`raise_exception`, `strftime_now` and `tojson`, and `{% generation %}` marks nothing. Reads a request on stdin, writes the results to
stdout, both as JSON. Imports nothing of seqloom: the child starts in a few hundredths of a second.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MAX_OUTPUT = 8 << 20  # characters of a rendered chat
MEMORY = 1 << 30  # bytes of the child's address space
SECONDS = 10  # of computing that the child may take


def make_environment() -> Any:
    """The sandbox: no attribute that leads out of it, nothing that changes the values given to it."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        """`{% generation %} … {% endgeneration %}` is its content."""

        tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def to_json(
        value: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(form: str) -> str:
        from datetime import datetime

        return datetime.now().strftime(form)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def render(template: Any, messages: list[dict[str, str]], tokens: dict[str, str], prompt: bool) -> str:
    """The text of one chat; raises if it is too long."""
    parts: list[str] = []
    size = 0
    for part in template.generate(
        messages=messages, tools=None, documents=None, add_generation_prompt=prompt, **tokens
    ):
        size += len(part)
        if size > MAX_OUTPUT:
            raise ValueError(f"more than {MAX_OUTPUT:,} characters for one chat")
        parts.append(part)
    return "".join(parts)


def render_all(request: dict[str, Any]) -> list[dict[str, str]]:
    """One {"text": …} or {"error": …} for each [messages, prompt] of the request; one error for all if the template is wrong."""
    from jinja2.exceptions import TemplateSyntaxError

    try:
        template = make_environment().from_string(request["template"])
    except TemplateSyntaxError as error:
        return [{"error": f"line {error.lineno}: {error.message}"}] * len(request["chats"])
    except (RecursionError, MemoryError, ValueError, TypeError, OverflowError, SyntaxError) as error:
        return [{"error": f"not a template ({type(error).__name__})"}] * len(request["chats"])
    results = []
    for messages, prompt in request["chats"]:
        try:
            results.append({"text": render(template, messages, request["tokens"], prompt)})
        except MemoryError:
            results.append({"error": "it takes too much memory"})
        except RecursionError:
            results.append({"error": "it calls itself without end"})
        except Exception as error:  # a template may raise anything
            results.append({"error": " ".join(str(error).split())[:300] or type(error).__name__})
    return results


def main() -> None:
    """The child: sets its limits, then renders."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass  # a system without limits: the parent's clock remains
    json.dump(render_all(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
