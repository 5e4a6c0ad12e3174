"""Meters of the memory that a run takes, one file for each place that it may be in.

``port.py`` is the interface of a meter. ``nvidia.py`` has the meter of a GPU: ``nvidia_listing.py`` finds the GPUs,
``neighbours.py`` tells the run's processes from others. ``deadline.py`` is for drivers that hang, and ``run_meter.py``
puts the meters of one run together, the host's memory among them.
"""
