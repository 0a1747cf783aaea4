"""Thin classes for frameworks that have their own checkpoints. Each module imports its framework; this one nothing."""
