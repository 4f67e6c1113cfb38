"""The parts of scripts/prove_scale: shards to caption, a cluster whose parts are killed, and what must be true then."""
