"""GRPO from scratch: builds the course's notebooks, judges hand-ins, runs a class."""

import sys

# A grammar that jsonschema, which nbformat brings, would build for 1.6 s and that nobody here asks for.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
