"""GPU kernels of our own, in Triton: imported only where there is a GPU to run them."""
