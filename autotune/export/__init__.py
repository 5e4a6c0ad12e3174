"""The exported bundle: one module per file that is written, and the folder they make."""
