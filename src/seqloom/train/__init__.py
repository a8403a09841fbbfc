"""Training: one loop, its options, checkpoints. What the `train` section of a config may name."""
