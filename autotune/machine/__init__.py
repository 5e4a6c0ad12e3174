"""Inventory of this computer: devices and their meters, host memory, interpreters, engines and their environments."""
