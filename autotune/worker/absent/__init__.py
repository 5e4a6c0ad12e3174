"""A GPU that is not there: the script sees a CUDA device, and its tensors on that device have sizes but no bytes."""
