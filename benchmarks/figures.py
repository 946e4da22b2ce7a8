"""How figures are written."""

from __future__ import annotations


def figure_text(figure: float) -> str:
    """Three digits that matter, thousands apart: 12,345 · 123 · 12.3 · 1.23."""
    if figure == 0:
        return "0"
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"
