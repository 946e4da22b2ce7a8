"""The tree map: what its tiles cover, and how they are shaded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.console.table_contents import Part
from worker.console.tables import tiles_of
from worker.console.tree_map import HEIGHT, TILES_MAX, Item, shade, tree_map

WIDTH = 960.0
sizes = st.lists(st.integers(0, 10**12), max_size=80).map(lambda items: sorted(items, reverse=True))


def named(size: int) -> Item:
    return Item(size, 0.0, "name", "size", "text")


@given(sizes)
def test_each_tile_has_its_share_of_the_area_and_none_lie_on_each_other(sizes: list[int]) -> None:
    tiles = tree_map([named(size) for size in sizes], WIDTH)
    sized = [size for size in sizes if size]
    assert len(tiles) == len(sized)
    for tile, size in zip(tiles, sized, strict=True):
        area = WIDTH * HEIGHT * size / sum(sized)
        assert tile.width * tile.height == pytest.approx(area, rel=0.05, abs=10)
        assert -0.02 <= tile.x <= tile.x + tile.width <= WIDTH + 0.05
        assert -0.02 <= tile.y <= tile.y + tile.height <= HEIGHT + 0.05
    for at, one in enumerate(tiles):
        for other in tiles[at + 1 :]:
            across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert min(across, down) <= 0.05


def test_equal_parts_are_nearly_square() -> None:
    tiles = tree_map([named(1)] * 12, WIDTH)
    assert all(1 / 2 < tile.width / tile.height < 2 for tile in tiles)


def test_a_tile_has_as_much_text_as_it_has_room_for() -> None:
    large, long, small = tree_map(
        [Item(1_000, 0, "day=1", "9 MB", "t"), Item(100, 0, "n" * 500, "9 MB", "t"), Item(1, 0, "day=2", "9 KB", "t")],
        WIDTH,
    )
    assert large.lines == ["day=1", "9 MB"]
    assert long.lines[0].endswith("…")
    assert len(long.lines[0]) < 20
    assert small.lines == []
    assert [tile.is_wide for tile in (large, long, small)] == [True, False, False]


@pytest.mark.parametrize(
    ("share", "step"), [(0, 0), (0.049, 0), (0.05, 1), (0.2, 2), (0.5, 3), (0.8, 4), (1, 4), (3.5, 4)]
)
def test_shades_begin_at_their_shares(share: float, step: int) -> None:
    assert shade(share) == step


def test_a_hundred_thousand_partitions_make_few_tiles_that_lose_no_byte() -> None:
    parts = [Part(f"p={at}", files=1, rows=1, size=100_000 - at) for at in range(100_000)]
    tiles = tiles_of(parts, 1)
    assert len(tiles) == TILES_MAX
    assert tiles[0].text.startswith("99,941 smaller ones: ")
    assert sum(tile.width * tile.height for tile in tiles) == pytest.approx(WIDTH * HEIGHT, rel=0.01)


def test_few_small_files_are_not_untidy_and_hidden_rows_are() -> None:
    assert Part("", files=4, small=4).untidy == 0
    assert Part("", files=5, small=4).untidy == 0.8
    assert Part("", files=1, rows=10, hidden=3).untidy == 0.3
