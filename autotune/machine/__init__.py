"""What this computer has: devices and their meters, the host's memory, interpreters, engines and their environments."""
