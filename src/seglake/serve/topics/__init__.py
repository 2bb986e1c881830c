"""What clients see as topics: those of the lake, and windows, versions and replays of them."""
