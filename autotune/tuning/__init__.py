"""A study at work between discovery and bundle: its trials, its finals, the winner's proof, and the time for them."""
