"""Profiles that look at reads are serialisable over tables, where a transaction only reads in one of them too."""

import pytest

from metaservice.core.table.meta import Profile
from tests.model.two_tables import play, serial_order

SEEDS = 250
READING = [Profile.DELTA_SERIALIZABLE, Profile.DELTA_WRITE_SERIALIZABLE, Profile.ROW_LEVEL]


@pytest.mark.parametrize("keyed", [True, False], ids=["primary-key", "append"])
@pytest.mark.parametrize("profile", READING)
def test_a_serial_order_explains_every_history_of_two_tables(profile: Profile, keyed: bool) -> None:
    committed = lost = 0
    for seed in range(SEEDS):
        story = play(profile, keyed=keyed, seed=seed)
        order = serial_order(story)
        names = [[type(program).__name__ for _, program, _, _ in parts] for parts in story.committed]
        assert order is not None, f"seed {seed}: {names}"
        committed += len(story.committed)
        lost += story.lost
    assert min(committed, lost) > SEEDS, (committed, lost)
