"""The parts of scripts/bench_caption that measure larger pictures and how costs grow."""
