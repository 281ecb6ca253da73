"""State machines, pure: decide gives records and effects, replay is the only mutator."""
