"""What this machine can do: augmentations, environments, updates and whole training, timed."""
