# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench docs clean

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[judge,pretrained,text,studio,ray,demo,dev]'
	touch $@

demo: $(VENV)/installed  ## speak, render speech, train a codec for some minutes, resume it, judge it, write demo/report.html
	$(BIN)/madrigal demo --out demo

test: $(VENV)/installed lint  ## everything that CI checks
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/installed  ## figures, as ratios taken in one run; see benchmarks/README.md
	$(BIN)/python benchmarks/run.py

docs: $(VENV)/installed  ## write docs/options.md from the recipes' own descriptions
	$(BIN)/python scripts/write_options.py

clean:
	rm -rf $(VENV) demo build *.egg-info
