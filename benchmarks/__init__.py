"""Side by side with peers, one command each; every benchmark has the form of `benchmarks.frame`."""
