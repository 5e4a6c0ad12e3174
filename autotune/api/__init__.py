"""Python interface in place of the command line: bundles in a loop of one's own, and studies as functions."""
