"""A package beside the script that builds the model."""
