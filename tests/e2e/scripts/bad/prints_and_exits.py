"""Prints its usage and exits with the status given as its argument, 0 if there is none; trains nothing."""

import sys

import torch

print("usage: prints_and_exits.py [STATUS]; torch", torch.__version__.split(".")[0])
print("nothing to train here", file=sys.stderr)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
