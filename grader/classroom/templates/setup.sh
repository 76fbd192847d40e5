#!/usr/bin/env bash
# Gradescope runs this once, as root, when the autograder is uploaded: what run_autograder needs, in a virtual environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export DEBIAN_FRONTEND=noninteractive OMP_NUM_THREADS=1 PYTHONPATH=source

apt-get update -qq
apt-get install -y -qq bubblewrap python3 python3-venv
python=python3
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then # Ubuntu 22.04 brings 3.10
  apt-get install -y -qq python3.11 python3.11-venv
  python=python3.11
fi

"$python" -m venv venv
venv/bin/pip install --quiet --no-cache-dir --constraint source/constraints.txt \
  --extra-index-url https://download.pytorch.org/whl/cpu torch numpy matplotlib nbformat ipython babel

venv/bin/python -m grader.classroom.gradescope "$PWD" --rehearse
