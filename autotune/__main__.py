"""``python -m autotune``."""

from .cli import main

main()
