"""Names of older versions: of config types and options, of weights, of keys in JSON files. They are read for ever and never written.

Everything that reads a stored file passes it through here first, so that the rest of the package knows the present names only.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

TYPE_ALIASES: dict[str, dict[str, str]] = {
    # section of a config: {old type: present type}
}
OPTION_ALIASES: dict[str, dict[str, str]] = {
    # present type, or the section for options that belong to no type: {old option: present option}; "" holds the names of sections
}
WEIGHT_RENAMES: list[tuple[str, str]] = [
    # (pattern of an old name, present name), tried in order on names that the model does not have
]
JSON_KEYS: dict[str, dict[str, str]] = {
    # file name: {old key: present key}
}


def upgrade_config(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A config with present names. An old name wins over the present one beside it: it can only come from a later change."""
    renamed = _rename(tree, OPTION_ALIASES.get("", {}))
    return {section: _upgrade(value, str(section), str(section)) for section, value in renamed.items()}


def _upgrade(node: Any, section: str, owner: str) -> Any:
    types = TYPE_ALIASES.get(section, {})
    if isinstance(node, str):
        return types.get(node, node)
    if isinstance(node, list):
        return [_upgrade(item, section, owner) for item in node]
    if not isinstance(node, Mapping):
        return node
    if isinstance(name := node.get("type"), str):
        owner = types.get(name, name)
        node = {**node, "type": owner}
    renamed = _rename(node, OPTION_ALIASES.get(owner, {}))
    return {key: value if key == "type" else _upgrade(value, section, "") for key, value in renamed.items()}


def _rename(node: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key in sorted(node, key=lambda key: key in aliases):  # old names last
        value, name = node[key], aliases.get(key, key)
        before = result.get(name)
        result[name] = (
            {**before, **value} if isinstance(before, Mapping) and isinstance(value, Mapping) else value
        )
    return result


def upgrade_weight(name: str, present: Container[str]) -> str:
    """The present name of a stored weight; `present` are the names that the model has. Any combination of the renames may apply."""
    if name in present:
        return name
    candidates = [name]
    for pattern, new in WEIGHT_RENAMES:
        renamed = [re.sub(pattern, new, candidate) for candidate in candidates]
        candidates += [candidate for candidate in renamed if candidate not in candidates]
    return next((candidate for candidate in candidates if candidate in present), name)


def upgrade_weights(stored: Mapping[str, Any], present: Container[str]) -> dict[str, Any]:
    """Stored weights under the names that the model has."""
    return {upgrade_weight(name, present): value for name, value in stored.items()}


def upgrade_patterns(patterns: Iterable[str]) -> list[str]:
    """Patterns of weight names, as `freeze` takes them, with the present names in place of old ones."""
    result = []
    for pattern in patterns:
        for old, new in WEIGHT_RENAMES:
            pattern = re.sub(old, new, pattern)
        result.append(pattern)
    return result


def upgrade_json(file: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """The top-level keys of a JSON file of a run under their present names."""
    keys = JSON_KEYS.get(file, {})
    return {keys.get(key, key): value for key, value in record.items()}
