# learn: the notebooks in JupyterLab. test: everything that must hold; thorough: the same on more seeds, versions and kernels; browser: in
# Chromium. extras: installs what only some need (Ray; TRL and verl; notebook 5's packages; Sphinx), so that thorough tests that, too. demo: hand-ins graded, and
# the run. site: the course as static pages in site/, for reading; the first time it runs the notebooks, which takes minutes.
# TORCH_INDEX=https://download.pytorch.org/whl/cpu takes a torch without CUDA (2 GB less on Linux). PORT=8888 is JupyterLab's.
PYTHON ?= python3
VENV ?= .venv
PORT ?= 8888
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

learn: $(VENV)/ready
	$(BIN)/jupyter lab --port=$(PORT) --notebook-dir=notebooks $(if $(filter 0,$(shell id -u)),--allow-root)

test: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadgroup --ignore=tests/browser

thorough: $(VENV)/ready
	$(BIN)/pytest -n 2 --dist loadgroup --ignore=tests/browser -m thorough
	$(BIN)/pytest -n 2 --dist loadfile --nbval-lax --ignore=solutions/05_language_model.ipynb --ignore=solutions/zh solutions
	printf '%s\n' default avx2 | xargs -P 2 -I KERNEL env ATEN_CPU_CAPABILITY=KERNEL sh -ec '$(BIN)/pytest -m "training and not thorough" tests/course; $(BIN)/pytest -m training tests/course/test_numbers.py'

extras: $(VENV)/ready
	$(BIN)/pip install --quiet --constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[dev,bench,cluster,lm,site]'
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps verl
	$(BIN)/pip install --quiet --upgrade --no-deps --target $(VENV)/ipython7 ipython==7.34.0 backcall pickleshare decorator  # Colab's

demo: $(VENV)/ready
	$(BIN)/python -m grader.demo demo

site: $(VENV)/ready
	$(BIN)/python -m website

release: $(VENV)/ready
	$(BIN)/grader release

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks

browser: $(VENV)/ready
	$(BIN)/pytest tests/browser

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; name another with PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[dev]'
	touch $@

.PHONY: learn test thorough extras demo site release bench browser
