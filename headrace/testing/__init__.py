"""Real, small stand-ins for tests: filesystems, clocks, a broker."""
