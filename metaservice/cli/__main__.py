"""`python -m metaservice.cli` is `laketx`."""

from metaservice.cli import main

main()
