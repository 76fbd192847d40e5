"""Measures what the project promises, side by side: the loss, the run of notebook 4, the grading of a class.

`python -m benchmarks` does all three, `python -m benchmarks NAME` one; `NAME --help` tells its options, such as
`classroom --sizes 4`. Options without a name are the classroom's.
"""

import argparse
import subprocess
import sys
from pathlib import Path

NAMES = ("loss", "run", "classroom")
parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, add_help=False)
parser.add_argument("name", nargs="?", choices=NAMES, help="all three without one")
chosen, options = parser.parse_known_args()
if not chosen.name and {"-h", "--help"} & set(options):
    parser.print_help()
    sys.exit()
for name in [chosen.name] if chosen.name else ["classroom"] if options else NAMES:
    print(f"\n=== {name}", flush=True)
    if status := subprocess.run([sys.executable, str(Path(__file__).with_name(f"{name}.py")), *options], check=False).returncode:
        sys.exit(status)
