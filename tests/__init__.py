"""Everything that tests LakeTX; each folder says what it is for."""
