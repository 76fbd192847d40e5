"""Measures what the project promises, side by side: `python -m benchmarks [loss|run|classroom]`, all three by default."""

import subprocess
import sys
from pathlib import Path

for name in sys.argv[1:] or ["loss", "run", "classroom"]:
    print(f"\n=== {name}", flush=True)
    subprocess.run([sys.executable, str(Path(__file__).with_name(f"{name}.py"))], check=True)
