# The main targets are `make serve`, `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Bytecode is compiled on first use instead.
PIP = -m pip install --quiet --disable-pip-version-check --no-compile
# uv creates the test environments in a fifth of pip's time.
UV = $(BIN)/uv
INSTALL = $(UV) pip install --quiet --python
export UV_FIND_LINKS := $(PIP_FIND_LINKS)
# Trust the certificates of the machine, like pip, for companies with a proxy.
export UV_SYSTEM_CERTS := 1
# NOT_SLOW= also runs the slow tests.
NOT_SLOW = -m "not slow"
# Parallel runs would write to the same cache.
PYTEST = -m pytest -q -p no:cacheprovider --durations=15 $(NOT_SLOW)
# The tests create tens of thousands of folders: use /dev/shm if it has 4 GB and may run programs.
MEMORY := $(shell grep -s ' /dev/shm ' /proc/mounts | grep -qv noexec && \
	df --output=avail /dev/shm | awk 'NR == 2 && $$1 > 4e6 { print "/dev/shm" }')
# Tests start programs many times, which then use the bytecode.
unexport PYTHONDONTWRITEBYTECODE
# Two processes per core, since many wait for servers and other programs.
JOBS ?= $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN))
test-%: export TMPDIR := $(or $(TMPDIR),$(MEMORY),/tmp)
# Libraries use one thread, or the threads would wait for each other.
test-%: export OMP_NUM_THREADS = 1
test-%: export TF_NUM_INTRAOP_THREADS = 1
test-%: export TF_NUM_INTEROP_THREADS = 1
# If one of these changes, tfod is installed again.
SOURCES = pyproject.toml hatch_build.py $(wildcard plugin/tfod/kernel/src/*.rs)

# Without the current one, and the oldest, which test-lowest uses.
ALL_PYTHONS = 3.10 3.11 3.12 3.13 3.14 3.15
PYTHONS = $(filter-out $(shell $(firstword $(wildcard $(BIN)/python) $(PYTHON)) -c 'import sys; print("%d.%d" % sys.version_info[:2])') 3.10,$(ALL_PYTHONS))
PYTHON_OF = $$(tests/find_python $(1) || echo $(PYTHON))
# Empty if cargo does not run, such as rustup's cargo without a toolchain.
CARGO := $(shell cargo --version >/dev/null 2>&1 && echo cargo)

# The stages of `make test` and of `make test-all`.
STAGES = environment tests
ALL_STAGES = everything tests others

.PHONY: serve demo test test-all test-slow environment everything lint docs-build fuzz-kernel tests others \
	test-old-datumaro test-old-cvat test-cvat-2.15 test-lowest test-receivers coverage binary \
	constraints release-check release-files pin benchmarks docs screenshot browser browser-pin clean
.PRECIOUS: .venv-py%/installed

serve: $(VENV)/serve.installed
	$(BIN)/tfod serve

demo: $(VENV)/demo.installed
	$(BIN)/python examples/demo.py

# All stages run, even if one fails. The failed ones are listed at the end.
test:
	@failed=; \
	for stage in $(STAGES); do \
		$(MAKE) --no-print-directory $$stage || failed="$$failed $$stage"; \
	done; \
	if [ -n "$$failed" ]; then echo "make test: failed:$$failed" >&2; exit 1; fi; \
	echo "make test: every stage passed ($(STAGES))"

# All tests except the slow ones: also lint, old Datumaro, lower bounds, other Pythons, the receivers,
# Beam, PyTorch, buckets and a browser.
test-all:
	$(MAKE) --no-print-directory test STAGES="$(ALL_STAGES)"

# Also runs the tests that are marked as slow.
test-slow:
	$(MAKE) --no-print-directory test-all NOT_SLOW=

# The environment of `make test`. Other targets create theirs on demand.
environment: $(VENV)/test.installed

everything: $(VENV)/test-all.installed

# With the newest Datumaro, and TensorFlow as the oracle. One process per part, the longest first: a
# process loads only what its folders need, and loading TensorFlow takes ten seconds.
PARTS = rest checker formats validator
FOLDERS_checker = tests/checker tests/kernel tests/tfrecord
FOLDERS_formats = $(patsubst %,tests/%,cli detection example formats shards sources)
FOLDERS_validator = tests/validator
FOLDERS_rest = tests $(foreach part,$(filter-out rest,$(PARTS)),$(FOLDERS_$(part):%=--ignore=%))

tests: environment
	$(MAKE) --no-print-directory -k -j$(JOBS) -O $(PARTS:%=test-part-%)

test-part-%: $(VENV)/test.installed
	$(BIN)/python $(PYTEST) $(FOLDERS_$*) $(MORE:%=--ignore=%)

# Tests that need other packages or more time: servers, trainers, a browser, the pages.
MORE_beam = tests/beam tests/tfrecord/remote tests/training/torch tests/training/tensorflow/test_verdicts.py
MORE_cvat = tests/cvat/client tests/cvat/docker tests/test_ci.py tests/test_wheel.py tests/docs
MORE_service = $(patsubst %,tests/validator/test_%.py,browser openapi docker_files queue) tests/viewer/test_page.py
MORE_pyodide = tests/browser/test_32_bit.py
MORE_browser = $(filter-out $(MORE_pyodide),$(wildcard tests/browser/test_*.py))
MORE = $(MORE_beam) $(MORE_cvat) $(MORE_service) $(MORE_pyodide) $(MORE_browser) tests/receivers

test-more-%: $(VENV)/test-all.installed
	$(BIN)/python $(PYTEST) $(MORE_$*)

# The browser, the oldest packages and the receivers come first, as they take the longest. With other versions
# of Datumaro and Python, only a few examples of each property are tried.
others: export HYPOTHESIS_PROFILE = few
others: everything
	$(MAKE) --no-print-directory -k -j$(JOBS) -O test-more-browser test-more-pyodide test-lowest test-receivers \
		test-more-service test-more-cvat test-more-beam lint docs-build fuzz-kernel test-old-cvat \
		test-old-datumaro test-cvat-2.15 $(PYTHONS:%=test-python-%)

# Style, types, plain English, and the Rust tests of the kernel.
lint: $(VENV)/lint.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy validator/browser/build.py
	$(BIN)/python tests/plain_english.py --limit 2 plugin validator docs tests
	@[ -n "$(CARGO)" ] || echo "lint: skipped the Rust tests of the kernel: cargo does not run"
	[ -z "$(CARGO)" ] || cargo test --lib --quiet --offline --target-dir build/kernel \
		--manifest-path plugin/tfod/kernel/Cargo.toml

docs-build: $(VENV)/test-all.installed
	$(BIN)/sphinx-build -E -q -W --keep-going docs build/docs

# 15 seconds of coverage-guided fuzzing; see tests/kernel/fuzz for longer runs.
fuzz-kernel: $(VENV)/test-all.installed
	@[ -n "$(CARGO)" ] || echo "fuzz-kernel: skipped: cargo does not run"
	[ -z "$(CARGO)" ] || tests/kernel/fuzz 15

# CVAT 2.15, except for the tests that already start servers of several versions.
test-cvat-2.15: $(VENV)/test.installed
	CVAT_DOUBLE=2.15 $(BIN)/python $(PYTEST) tests/cvat/server \
		--ignore tests/cvat/server/test_registration.py

# The plugin and the app for CVAT with the Datumaro of older CVAT servers.
test-old-datumaro: .venv-datumaro-0.3/installed
	.venv-datumaro-0.3/bin/python $(PYTEST) tests/datumaro

test-old-cvat: .venv-datumaro-0.3/installed
	.venv-datumaro-0.3/bin/python $(PYTEST) tests/cvat/server

# The receivers' own decoders read our shards. Only protobuf's Python implementation loads the OD API's
# code of 2022. The environment is not a prerequisite, since make would start this target last.
test-receivers: export PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION = python
test-receivers:
	$(MAKE) --no-print-directory .venv-receivers/installed
	.venv-receivers/bin/python $(PYTEST) tests/receivers

# The coverage with both versions of Datumaro. Not part of `make test`, since it takes half as long.
coverage: $(VENV)/test-all.installed .venv-datumaro-0.3/installed
	rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest -n auto --dist worksteal tests
	.venv-datumaro-0.3/bin/python -m coverage run -m pytest tests/datumaro tests/cvat/server
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --include 'plugin/*' --fail-under 95
	$(BIN)/python -m coverage report --include 'validator/*' --fail-under 94

CORE = @tests/core.txt

SERVICE = tests/checker tests/validator $(MORE_service:%=--ignore=%)

# The core, the checker and the service with the lower bounds of pyproject.toml, on Python 3.10 if it
# is installed.
test-lowest: .venv-lowest/installed
	.venv-lowest/bin/python $(PYTEST) $(CORE) $(SERVICE)

# The core on another Python. The newest, for which TensorFlow and Datumaro may have no wheels, also
# runs the checker and the service.
test-python-%: .venv-py%/installed
	! test -x .venv-py$*/bin/python || \
		.venv-py$*/bin/python $(PYTEST) $(CORE) $(if $(filter $(lastword $(ALL_PYTHONS)),$*),$(SERVICE))

# The site in build/docs/index.html. The pages of the rules are generated. Warnings are errors.
docs: $(VENV)/docs.installed
	$(BIN)/python docs/write_rules.py
	$(BIN)/python docs/draw_rooms.py
	$(BIN)/python -m tests.docs.compatibility
	$(BIN)/sphinx-build -E -q -W --keep-going docs build/docs

# The picture of a report in the README; needs Chromium.
screenshot: $(VENV)/test.installed
	$(BIN)/python docs/screenshot.py

# The page that checks in the browser, in build/browser. PYODIDE is the folder, URL or .tar.bz2 with
# Pyodide; without it, that is Pyodide's own distribution. Needs Debian's rustc and libstd-rust-dev-wasm32.
browser: $(VENV)/serve.installed
	@$(BIN)/python -m validator.browser.build --pyodide "$(PYODIDE)"

# The hashes of another version of Pyodide, for a person to commit: make browser-pin VERSION=0.28.3
browser-pin: $(VENV)/serve.installed
	@$(BIN)/python -m validator.browser.build --pyodide "$(PYODIDE)" --pin "$(VERSION)"

# tfod as a single file, build/binary/tfod, for machines without Python.
binary: .venv-binary/installed
	.venv-binary/bin/uv pip install --quiet --python .venv-binary --no-deps --reinstall .
	.venv-binary/bin/pyinstaller --noconfirm --log-level ERROR --distpath build/binary \
		--workpath build/binary/work docker/binary/tfod.spec

# All of a release that needs no account: files, an index, README.md, images, and what is left to do.
release-check: .venv-release/installed
	.venv-release/bin/python -m tests.release.rehearsal

# README.md and CHANGELOG.md of a release, for a person to commit.
release-files: .venv-release/installed
	.venv-release/bin/python -m tests.release.versions

# Commits of the actions and digests of the base images, for a person to commit. Needs skopeo.
pin: .venv-release/installed
	.venv-release/bin/python -m tests.release.pin

# The versions and hashes of the packages in the images: the newest on PyPI.
COMPILE = $(UV) pip compile --quiet --upgrade --generate-hashes --universal --python-version 3.10 \
	--no-annotate --custom-compile-command "make constraints" --output-file
constraints: $(UV)
	$(COMPILE) docker/constraints.txt --extra validator --extra scale pyproject.toml
	echo hatchling | $(COMPILE) docker/build-constraints.txt -

benchmarks: $(VENV)/test-all.installed
	$(BIN)/python benchmarks/run.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 16))' || \
		{ echo "tfod needs Python 3.10 to 3.15; choose one with: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv"; exit 1; }

$(VENV)/serve.installed: $(VENV)/bin/python $(SOURCES)
	$(BIN)/python $(PIP) -e '.[validator]'
	touch $@

$(VENV)/demo.installed: $(VENV)/bin/python $(SOURCES)
	$(BIN)/python $(PIP) -e '.[datumaro]'
	touch $@

$(UV): $(VENV)/bin/python
	$(BIN)/python $(PIP) uv

$(VENV)/test.installed: $(UV) $(SOURCES)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info >= (3, 14))' || { echo \
		"these tests need TensorFlow, so Python 3.10 to 3.13: make PYTHON=python3.12 VENV=.venv-3.12 ..."; exit 1; }
	$(INSTALL) $(BIN)/python -e '.[test]'
	@$(BIN)/tfod --version # shows the kernel, which pip does not
	touch $(VENV)/serve.installed $(VENV)/demo.installed $@

$(VENV)/test-all.installed: $(VENV)/test.installed
	$(INSTALL) $(BIN)/python -e '.[test-all]'
	touch $(VENV)/docs.installed $(VENV)/lint.installed $@

$(VENV)/lint.installed: $(UV) $(SOURCES)
	$(INSTALL) $(BIN)/python -e '.[validator,remote,cvat,lint]'
	touch $@

$(VENV)/docs.installed: $(VENV)/bin/python $(SOURCES)
	$(BIN)/python $(PIP) -e '.[validator,docs]'
	touch $@

.venv-datumaro-0.3/installed: $(VENV)/test.installed pyproject.toml tests/datumaro-0.3.txt
	$(UV) venv --quiet --python $(PYTHON) .venv-datumaro-0.3
	$(INSTALL) .venv-datumaro-0.3 -r tests/datumaro-0.3.txt
	$(INSTALL) .venv-datumaro-0.3 --no-deps --force-reinstall opencv-python-headless
	$(INSTALL) .venv-datumaro-0.3 -e .
	touch $@

# Uses the packages of $(VENV), too.
.venv-receivers/installed: $(VENV)/test-all.installed tests/receivers.txt
	$(UV) venv --quiet --python $(BIN)/python .venv-receivers
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
		> $$(.venv-receivers/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/test.pth
	$(INSTALL) .venv-receivers --no-deps -r tests/receivers.txt
	touch $@

.venv-binary/installed: pyproject.toml docker/binary/requirements.txt
	$(PYTHON) -m venv .venv-binary
	.venv-binary/bin/python $(PIP) uv
	.venv-binary/bin/uv pip install --quiet --python .venv-binary . -r docker/binary/requirements.txt
	touch $@

.venv-release/installed: $(UV) Makefile
	$(UV) venv --quiet --clear --python '>=3.11' .venv-release
	$(INSTALL) .venv-release uv twine check-jsonschema 'pytest>=9'
	touch $@

.venv-lowest/installed: $(UV) pyproject.toml tests/lowest.txt
	$(UV) venv --quiet --clear --python $(call PYTHON_OF,$(firstword $(ALL_PYTHONS))) .venv-lowest
	$(INSTALL) .venv-lowest --resolution lowest-direct -r pyproject.toml --extra validator -r tests/lowest.txt
	$(INSTALL) .venv-lowest --no-deps -e .
	touch $@

# uv downloads a Python that is not installed. Empty if it cannot.
.venv-py%/installed: $(UV) pyproject.toml
	mkdir -p .venv-py$*
	if $(UV) venv --quiet --clear --python $$(tests/find_python $* || echo $*) .venv-py$* 2>.venv-py$*.log; then \
		$(INSTALL) .venv-py$* -e '.[validator]' 'pytest>=9' 'hypothesis>=6.100' \
			'jsonschema-rs>=0.30' 'requests>=2.31'; \
	else echo "Python $* is not on this machine, and uv cannot download it: not tested"; fi
	touch $@

clean:
	rm -rf .venv .venv-* .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis demo_output
