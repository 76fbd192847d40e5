"""Raises its own limits.

Seen: raised []
"""
import resource


def double(x, scale=2.0):
    raised = []
    for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE"):
        try:
            resource.setrlimit(getattr(resource, name), (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            raised.append(name)
        except (ValueError, OSError):
            pass
    raise RuntimeError(f"raised {raised}")
