"""The live display of a study."""
