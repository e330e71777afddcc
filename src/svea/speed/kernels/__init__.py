"""Kernels of our own: Triton where there is a GPU; C for CPUs, compiled where it runs."""
