"""Parts of the measurement of snapshots; they run in an environment of their own, with PyTorch and the peers."""
