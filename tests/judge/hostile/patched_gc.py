"""Puts hooks where the interpreter cleans up."""
import atexit
import gc
import sys
import threading

gc.callbacks.append(lambda *a: None)
atexit.register(lambda: open("/tmp/hostile_was_here", "w"))
sys.settrace(lambda *a: None)
sys.setprofile(lambda *a: None)
sys.excepthook = sys.unraisablehook = threading.excepthook = lambda *a: None
sys.meta_path.insert(0, None)


def double(x, scale=2.0):
    return x
