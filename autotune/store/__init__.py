"""Studies in a database: Optuna's tables and ours side by side, under one URL.

Ours (prefix ``autotune_``) hold what Optuna has no place for: specs, facts, outcomes with their raw samples,
environments, repeats, verdicts. They name studies and trials by Optuna's ids. Who writes what, in which order, so that
a crash at any moment loses at most the running trial:

1. Optuna has the trial, then ``begin`` writes our row with its owner, this process.
2. ``finish`` commits the outcome to our row.
3. Optuna is told, then ``mark_told``.

A crash between 1 and 2 is mended by ``recover`` (fail the trial, enqueue its configuration again, exactly once), one
between 2 and 3 by ``untold``.
"""
