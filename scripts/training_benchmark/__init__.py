"""The parts of scripts/bench_train."""
