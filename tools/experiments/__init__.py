"""The experiments whose logs the pages read: one module for each such page.

A module names the log's file, ``LOG``, and has ``runs(root)``, which gives each run by
name as a function that makes it and returns what is to be stored.
"""
