"""All that is believed of memory and speed: simulated or tabled before a trial, learnt from every trial after it."""
