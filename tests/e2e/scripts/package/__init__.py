"""A package whose modules import each other relatively, so that its script runs only as a module."""
