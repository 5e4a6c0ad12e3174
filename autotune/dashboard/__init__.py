"""The dashboard: the studies and gates of one database as pages in a browser, from a server on this machine.

It only reads. ``door.py`` is who is let in, ``app.py`` the pages by their addresses, whose templates are in
``dashboards/``; ``seen.py`` keeps reports between two looks, and gives what a trial wrote. ``comparing.py`` holds
two studies against each other, and ``serving.py`` is the server.
"""
