"""UNION BY NAME as UNION of the same columns in one order.

SELECT a, b … UNION BY NAME SELECT b, c …

SELECT a, b, NULL AS c FROM (SELECT a, b …) UNION SELECT NULL AS a, b, c FROM (SELECT b, c …)
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from worker.views.functions import refused

PART: Final = "_part"


def with_places(tree: exp.Expr) -> None:
    """Write the parts of each UNION BY NAME with all columns. Of one that has a star, the columns are not known yet."""
    for union in reversed(list(tree.find_all(exp.Union))):
        if not union.args.get("by_name"):
            continue
        listed = [_names_in(side) for side in (union.this, union.expression)]
        names = list(dict.fromkeys(name for side in listed for name in side or ()))
        if None in listed:
            if union.find_ancestor(exp.Select) is not None:
                raise refused("a UNION BY NAME in another query lists its columns: write them instead of *")
            continue
        for arg, own in zip(("this", "expression"), listed, strict=True):
            union.set(arg, _with_all(union.args[arg], own or (), names))
        union.set("by_name", False)


def _names_in(query: exp.Expr) -> tuple[str, ...] | None:
    """The names of the columns in lower case; None if the text alone does not tell them."""
    plain = query.unnest() if isinstance(query, exp.Subquery) else query
    if isinstance(plain, exp.SetOperation):
        return None if plain.args.get("by_name") else _names_in(plain.this)
    if not isinstance(plain, exp.Select) or any(output.find(exp.Star, exp.Columns) for output in plain.selects):
        return None
    names = tuple(output.alias_or_name.lower() for output in plain.selects)
    return names if all(names) and len(set(names)) == len(names) else None


def _with_all(query: exp.Expr, own: tuple[str, ...], names: list[str]) -> exp.Select:
    columns = [
        exp.column(_quoted(name), table=PART) if name in own else exp.alias_(exp.Null(), _quoted(name))
        for name in names
    ]
    part = query.unnest() if isinstance(query, exp.Subquery) else query
    return exp.select(*columns).from_(
        exp.Subquery(this=part.copy(), alias=exp.TableAlias(this=exp.to_identifier(PART)))
    )


def _quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)
