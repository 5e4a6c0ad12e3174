"""The dashboard: the studies and gates of one database as pages in a browser, from a server on this machine."""
