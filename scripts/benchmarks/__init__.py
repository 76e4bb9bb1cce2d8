"""The parts of `scripts/bench`: workloads, contenders and results."""
