"""Our own kernels: Triton and CUDA for GPUs, C for CPUs, compiled on the machine that runs them."""
