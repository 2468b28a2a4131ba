"""What the benchmarks share: contestants in turns, cold and warm files, GPU memory, results."""
