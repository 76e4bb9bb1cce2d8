"""The parts of `scripts/bench`: what is measured, against what, and how it is told."""
