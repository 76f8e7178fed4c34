# A thin front over the CMake presets. `make demo` and `make test` need nothing but Debian 12 or 13 and root: they install
# the missing packages first. Plain `make` builds and installs nothing.
PRESET ?= release
BUILD := build/$(PRESET)

.PHONY: all build deps demo test bench deb lint fuzz sanitize format clean

all: build

build:
	@command -v cmake >/dev/null || { echo "make: cmake is missing; \`make deps\` installs what ebclr needs" >&2; exit 1; }
	@[ -f $(BUILD)/build.ninja ] || cmake --preset $(PRESET) || \
	  { rm -f $(BUILD)/CMakeCache.txt; echo "make: not configured; \`make deps\` installs the packages that ebclr needs" >&2; exit 1; }
	@cmake --build --preset $(PRESET)

deps:
	@tools/install-deps

demo: deps
	@$(MAKE) --no-print-directory build
	@tools/demo $(BUILD)/ebclr

test: deps
	@$(MAKE) --no-print-directory build
	@ctest --preset $(PRESET)

bench:
	@tools/install-deps --bench
	@[ ! -d $(BUILD) ] || cmake --preset $(PRESET) -UFAISS_* -UEBCLR_BLAS -UEBCLR_LAPACK >/dev/null
	@$(MAKE) --no-print-directory build
	@$(BUILD)/ebclr bench all

# Debian packages of program and library in $(BUILD).
deb:
	@tools/install-deps --deb
	@$(MAKE) --no-print-directory build
	@cd $(BUILD) && rm -f *.deb && cpack >cpack.log || { cat cpack.log >&2; exit 1; }
	@ls $(BUILD)/*.deb

lint:
	@tools/install-deps --lint
	@tools/lint --all

# Hostile files for every reader, T seconds each; needs clang.
T ?= 60
fuzz: deps
	@tools/install-deps --fuzz
	@tools/fuzz -t $(T)

# The tests of all rooms under the sanitizers, an hour or more; a part of them: make sanitize ROOMS="core cpu" KIND=asan
sanitize: deps
	@tools/sanitize $(KIND) $(ROOMS)

format:
	@git ls-files '*.h' '*.cpp' | xargs clang-format -i

clean:
	@rm -rf $(BUILD)
