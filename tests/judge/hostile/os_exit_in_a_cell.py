"""Leaves while its cell runs."""
import os

os._exit(0)
