"""An error with a text of a gigabyte, and with control characters."""


def double(x, scale=2.0):
    raise ValueError("\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>" + "x" * 10**8)
