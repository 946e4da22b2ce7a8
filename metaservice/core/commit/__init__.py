"""May a change follow the commits since its snapshot, and what does it become on top of them?"""
