"""row_level is serialisable: for every history of crossing transactions there is a serial order that explains it."""

import pytest

from metaservice.core.table.meta import Profile
from metaservice.core.table.model import COMPACTIONS, UNSORTED, Operation
from tests.model.programs import play, serial_order

SEEDS = 600
ROWS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)
NEVER = {pair for rows in ROWS for compaction in COMPACTIONS for pair in ((rows, compaction), (compaction, rows))}
NEVER_BY_IDS = {pair for pair in NEVER if not UNSORTED.isdisjoint(pair)}


@pytest.mark.parametrize("keyed", [True, False], ids=["primary-key", "append"])
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.long) for block in range(1, 4))])
def test_a_serial_order_explains_every_history(block: int, keyed: bool) -> None:
    committed = lost = compacted = 0
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        played = play(Profile.ROW_LEVEL, keyed=keyed, seed=seed)
        assert serial_order(played) is not None, f"seed {seed}: {[type(p).__name__ for p, _ in played.committed]}"
        assert not played.met & NEVER, f"seed {seed}"
        committed += len(played.committed)
        lost += played.lost
        compacted += played.compacted
    assert min(committed, lost, compacted) > SEEDS // 2, (committed, lost, compacted)


@pytest.mark.parametrize("keyed", [True, False], ids=["primary-key", "append"])
def test_row_level_lets_more_through_than_delta(keyed: bool) -> None:
    lost = {
        profile: sum(play(profile, keyed=keyed, seed=seed).lost for seed in range(100))
        for profile in (Profile.ROW_LEVEL, Profile.DELTA_WRITE_SERIALIZABLE)
    }
    assert lost[Profile.ROW_LEVEL] < lost[Profile.DELTA_WRITE_SERIALIZABLE]


@pytest.mark.parametrize("profile", [Profile.DELTA_SERIALIZABLE, Profile.DELTA_WRITE_SERIALIZABLE])
def test_delta_lets_changes_of_rows_and_compactions_that_do_not_sort_pass(profile: Profile) -> None:
    """A file that was compacted lives on in the output: who hides rows there meets who read or hid them before."""
    compacted, met = 0, set()
    for seed in range(SEEDS):
        played = play(profile, keyed=False, seed=seed, compactions=0.45)
        assert not played.met & NEVER_BY_IDS, f"seed {seed}"
        if profile is Profile.DELTA_SERIALIZABLE:
            assert serial_order(played) is not None, f"seed {seed}: {[type(p).__name__ for p, _ in played.committed]}"
        compacted += played.compacted
        met |= played.met
    assert compacted > SEEDS
    assert (Operation.UPDATE, Operation.CLUSTER) in met, "a compaction that sorts conflicts, as on Delta's page"
