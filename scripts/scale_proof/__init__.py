"""Parts of prove_scale, bench_scale and simulate_scale: shards, a cluster that loses parts, checks, a simulated job."""
