"""Meters of the memory that a run takes, one file for each place that it may be in.

``port.py`` says what a vendor's file gives. ``nvidia.py`` is one: ``nvidia_listing.py`` finds its GPUs, ``nvml.py``
opens its library, ``neighbours.py`` tells the run's processes from others. ``vendors.py`` names the vendors that there
are, ``deadline.py`` is for drivers that hang, and ``run_meter.py`` puts the meters of one run together, the host's
memory among them.
"""
