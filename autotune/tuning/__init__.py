"""A study at work between discovery and bundle: trials, confirmation, the winner's proof, and the time for them."""
