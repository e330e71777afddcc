"""What this machine can do: augmentations, environments, updates and training, timed.

Benchmarks return rows and print nothing; `svea bench` prints them.
"""
