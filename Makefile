# `make demo` and `make test` are all a newcomer needs; both install what they need into .venv.

# The newest Python that is supported and starts here; `make PYTHON=...` names another.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11; do \
  if $$name -c "" 2>/dev/null; then echo $$name; exit; fi; done; echo python3)
VENV ?= .venv
BIN = $(VENV)/bin


# Every target is a command, not a file.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' Makefile)

# Five seeds of the synthetic world, pre-trained, fine-tuned and compared.
demo: $(VENV)/installed
	$(BIN)/multiberts launch --gin_file=configs/demo.gin
	@echo "Open demo/report/index.html"

# The README's command and CI's: style, types, and all tests but the slow ones. Types are checked beside the
# tests. Two at a time: a third worker took a tenth more CPU time (it imports TensorFlow, too), and no less wall time.
# No worker is started again: it would run a test that hangs once more.
TESTS = $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
test: style
	$(MAKE) --no-print-directory --jobs=2 types most-tests
most-tests: $(VENV)/installed-for-tests
	$(TESTS) -m "not slow" --units=tests/lint/budget.toml

# Tests that start no process and import no TensorFlow: 1.5 minutes on 2 cores.
quick: $(VENV)/installed-for-tests
	$(BIN)/python -m pytest -n 2 --quick -m "not slow"

# All tests, those that are slow by nature included (installs, browser, compiles, rehearsals). What they
# cost is written to results/test_costs.md.
test-all: lint
	$(TESTS) --costs=results/test_costs.md
	$(BIN)/python -O -m pytest -n 2 --quick -m "not slow"  # without asserts: none of them may be a guard

# The same pipeline on real text and real tasks: make real DATA=folder.
real: check-data $(VENV)/installed
	$(BIN)/multiberts launch --gin_file=configs/real.gin --gin_param="DATA = '$(DATA)'"
	@echo "Open real/report/index.html"

check-data:
	@test -d "$(DATA)" || { \
	  echo "error: DATA is '$(DATA)', expected the folder of the data; give make real DATA=folder"; exit 1; }

# The Multi-Bootstrap against plain loops, scikit-learn and SciPy, as ratios.
bench-stats: $(VENV)/installed-for-tests
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m benchmarks.multibootstrap_speed

# Tokenising and batches against the original tokeniser and the library's, as ratios.
bench-data: $(VENV)/installed-for-tests
	$(BIN)/python -m benchmarks.data_speed

# Without their dependencies: keras-hub would bring a second TensorFlow, accelerate a PyTorch with CUDA.
PEERS = keras-hub==0.32.0 kagglehub==1.0.2 kagglesdk==0.1.28 accelerate==1.15.0

# Our training step against PyTorch's and a plain Keras model's, as ratios.
bench-pretrain: $(VENV)/installed-for-tests
	$(PIP) --no-deps $(PEERS)
	$(BIN)/python -m benchmarks.pretraining_speed

# The training step, compiled by libtpu and by JAX's CUDA plug-in for accelerators that are not here: docs/compile_table.md.
# Stopped, it resumes; a row is kept while its program and compiler are the same.
compile-check: $(VENV)/installed-for-compile
	$(BIN)/python -m multiberts.benchmarks.compile_check

# A tiny model for each of them.
test-compile: $(VENV)/installed-for-compile
	$(BIN)/python -m pytest tests/benchmarks/test_compile_check.py

$(VENV)/installed-for-compile: $(VENV)/installed-for-tests
	$(PIP) --editable '.[compile]'
	touch $@

# The JAX engine on one NVIDIA GPU, its results and its speed, in eight minutes: results/gpu/summary.txt. Installs nothing; it
# wants the Python of an environment with the extra jax-cuda12, PyTorch for the GPU, and transformers: make bench-gpu PYTHON=python.
bench-gpu:
	mkdir -p results/gpu/link && ln -sfn "$(CURDIR)" results/gpu/link/multiberts
	PYTHONPATH="$(CURDIR)/results/gpu/link" \
	  $(if $(findstring command,$(origin PYTHON)),$(PYTHON),$(firstword $(wildcard $(BIN)/python) $(PYTHON))) \
	  -m multiberts.benchmarks.gpu_check $(if $(TOY),--toy)

# A whole sweep of fine-tuning against one process of the usual script per run.
bench-finetune: $(VENV)/installed-for-tests
	$(PIP) --no-deps $(PEERS)
	$(BIN)/python -m benchmarks.finetuning_speed

# Plans and states of 10,000 runs, and 4,000 runs that do nothing, through the launcher; calls for 28,000 runs.
bench-launch: $(VENV)/installed
	$(BIN)/python -m multiberts.tests.tools.launch_speed

# Faults of machines that share a launch (other code, clocks, lost schedulers, held jobs, pipes for files), with real
# processes: what a user sees of each. Slurm's are for root where Debian's slurm-wlm and munge are installed.
launch-faults: $(VENV)/installed-for-tests
	$(BIN)/python -m multiberts.tests.tools.faults

# `multiberts predict` against transformers' pipeline, one thread each.
bench-predict: $(VENV)/installed-for-tests
	$(BIN)/python -m benchmarks.prediction_throughput

# Writing and reading the predictions of 25 x 5 runs.
bench-predictions: $(VENV)/installed
	$(BIN)/python -m benchmarks.predictions_speed

# Every row of the tables of bad inputs and bad files, then stops of every command by signals, quotas, full disks (as
# root), skewed clocks, second launchers and deletions, which must end in the same bytes; stopped, it resumes:
# make stress STOPS=number.
STOPS ?= 200
stress: $(VENV)/installed-for-tests
	$(BIN)/python tests/test_bad_inputs.py
	$(BIN)/python -m pytest tests/test_bad_files.py
	$(BIN)/python -m multiberts.tests.tools.stress --stops=$(STOPS)

# Coverage and false claims of every interval by simulation; stopped, it resumes. When an interval has changed: this, then
# cp results/calibration/calibration{.md,.jsonl,_table.csv} docs/, and correct the text of the page.
calibrate: $(VENV)/installed-for-tests
	$(BIN)/python -m benchmarks.calibration --gin_param="calibrate.num_processes = 2"

# What other evaluation programs write, for the tests of the readers: tests/samples/. HELM wants other versions and PyTorch.
SAMPLES = $(VENV)/samples
samples:
	$(PYTHON) -m venv $(SAMPLES)
	$(SAMPLES)/bin/pip install --quiet lm_eval==0.4.13 inspect_ai==0.3.285 datasets==5.2.0 evaluate==0.4.6
	for program in lm_eval inspect hugging_face; do \
	  $(SAMPLES)/bin/python tests/samples/make.py $$program tests/samples/$$program || exit; done
	$(PYTHON) -m venv $(SAMPLES)-of-helm
	$(SAMPLES)-of-helm/bin/pip install --quiet crfm-helm==0.5.16
	$(SAMPLES)-of-helm/bin/python tests/samples/make.py helm tests/samples/helm

# Two tiny seeds and a sweep by SkyPilot on a Slurm on this machine, where machines are lost: eight minutes. SKYPILOT_PYTHON
# names the Python of an environment with SkyPilot; else one is made, 650 MB.
SKYPILOT = $(VENV)/skypilot/bin
rehearse: $(VENV)/installed-for-tests $(if $(SKYPILOT_PYTHON),,$(SKYPILOT)/sky)
	SKYPILOT_PYTHON=$(or $(SKYPILOT_PYTHON),$(SKYPILOT)/python) \
	  $(BIN)/python -m multiberts.tests.tools.skypilot_rehearsal results/rehearsals

$(SKYPILOT)/sky: | $(VENV)/installed-for-tests
	$(BIN)/python -m uv --quiet --system-certs venv --clear --python 3.11 $(VENV)/skypilot
	$(BIN)/python -m uv --quiet --system-certs pip install --python $(SKYPILOT)/python \
	  'skypilot[gcp,kubernetes,slurm]==0.14.1' uv

# docs/launch_status.png: the status page of an experiment made up to show every state. Wants Chromium.
status-picture: $(VENV)/installed-for-tests
	$(BIN)/python -m multiberts.tests.tools.status_picture

# Seconds in which a preempted run saves a state of BERT-Base's size and pushes it.
bench-preemption: $(VENV)/installed
	$(BIN)/python -m benchmarks.preemption_saving

# Rooms for mypy and import-linter, which look for `multiberts` in a folder of that name.
ROOMS = $(shell sed -n 's/^ROOMS = (\(.*\))/\1/p' runs/__init__.py | tr -d '",') benchmarks

# Style, which folder may import which, stale generated lists, folders above their budgets, and types.
lint: style types
style: $(VENV)/installed-for-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=$(VENV)/link $(BIN)/lint-imports --no-logo
	$(BIN)/python tests/lint/packages.py
	$(BIN)/python tests/lint/pins.py
	$(BIN)/python tests/lint/prose.py
	$(BIN)/python tests/lint/budget.py

types: $(VENV)/installed-for-tests
	MYPYPATH=$(VENV)/link $(BIN)/mypy $(ROOMS:%=-p multiberts.%) -p multiberts.tests

# Source distribution and wheel of what is committed, in dist/. The quick tests then run in an empty folder on the files
# of the wheel alone: the checkout gives only the tests and what they read.
DIST = $(VENV)/dist
READ_BY_TESTS = .github CHANGELOG.md CITATION.cff CONTRIBUTING.md Makefile README.md SECURITY.md benchmarks constraints.txt docs mkdocs.yml \
  requirements.txt tests
dist: $(VENV)/installed-for-tests
	rm -rf dist $(DIST) && mkdir -p $(DIST)/source $(DIST)/empty
	git archive HEAD | tar -x -C $(DIST)/source
	$(BIN)/python -m uv build --quiet --out-dir dist $(DIST)/source
	$(BIN)/python -m uv tool run --quiet twine@7.0.0 check --strict dist/*
	$(BIN)/python -m uv pip install --quiet --no-deps --target $(DIST)/wheel dist/*.whl
	cd $(DIST)/source && cp -r $(READ_BY_TESTS) ../wheel/multiberts
	cd $(DIST)/empty && PYTHONPATH=$(abspath $(DIST))/wheel $(abspath $(BIN))/python -m pytest -n 2 --quick -m "not slow" \
	  ../wheel/multiberts/tests

# Pins what pyproject.toml asks for in constraints.txt and requirements.txt; `make lock UPGRADE=--upgrade` takes the newest.
lock: $(VENV)/installed-for-tests
	$(BIN)/python tests/lint/pins.py --write $(UPGRADE)

# Writes the list of packages in pyproject.toml.
packages: $(VENV)/installed-for-tests
	$(BIN)/python tests/lint/packages.py --write

# Lowers the budgets of folders that became lighter (tests/lint/budget.toml); never raises one.
budget: $(VENV)/installed-for-tests
	$(BIN)/python tests/lint/budget.py --lower

format: $(VENV)/installed-for-tests
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# An extra in its pinned versions, beside what requirements.txt installs: every stage and this checkout, which
# `import multiberts` and the command then find.
PIP = $(BIN)/pip install --quiet --constraint constraints.txt
# Checked first: pip refuses Python 3.14 only after some downloads, and names no other Python.
CHECK_PYTHON = import sys; found = sys.version_info[:2]; (3, 11) <= found < (3, 14) or sys.exit('error: found Python \
  %d.%d, expected 3.11 to 3.13, which TensorFlow has wheels for; $(if $(wildcard $(VENV)),remove $(VENV) and )give \
  make PYTHON=python3.13' % found)
$(VENV)/installed: requirements.txt constraints.txt pyproject.toml
	@$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -c "$(CHECK_PYTHON)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --requirement requirements.txt
	mkdir -p $(VENV)/link
	ln -sfn $(CURDIR) $(VENV)/link/multiberts
	touch $@

# The site, in the folder site/; warnings are errors.
docs: $(VENV)/installed-for-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(VENV)/installed-for-docs: $(VENV)/installed
	$(PIP) --editable '.[docs]'
	touch $@

$(VENV)/installed-for-tests: $(VENV)/installed
	$(PIP) --editable '.[test]'
	echo 'triton<0' >$(VENV)/no-cuda.txt  # every CUDA build of PyTorch needs it
	$(PIP) --constraint $(VENV)/no-cuda.txt torch==2.13.0 || echo "No build of PyTorch without CUDA \
	was found, so the golden test of the encoder will be skipped. To run it, let pip see PyTorch's \
	CPU wheels (PIP_EXTRA_INDEX_URL)."
	touch $@

clean:
	rm -rf demo
