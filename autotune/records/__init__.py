"""The data that crosses boundaries: frozen dataclasses and their JSON. Standard library only."""
