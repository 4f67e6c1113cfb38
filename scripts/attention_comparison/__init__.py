"""The parts of scripts/compare_attention."""
