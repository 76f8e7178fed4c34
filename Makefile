# A thin front over the CMake presets. `make demo` and `make test` need nothing but Debian 12 and root.
PRESET ?= release
BUILD := build/$(PRESET)

.PHONY: all deps build demo test bench lint fuzz sanitize format clean

all: build

deps:
	@tools/install-deps

$(BUILD)/build.ninja: | deps
	@cmake --preset $(PRESET)

build: deps $(BUILD)/build.ninja
	@cmake --build --preset $(PRESET)

demo: build
	@tools/demo $(BUILD)/ebclr

test: build
	@ctest --preset $(PRESET)

bench: build
	@$(BUILD)/ebclr bench all

lint:
	@tools/install-deps --lint
	@tools/lint --all

# Hostile files for every reader, T seconds each; needs clang.
T ?= 60
fuzz: deps
	@tools/install-deps --fuzz
	@tools/fuzz -t $(T)

# The tests of all rooms under the sanitizers; an hour or more.
sanitize: deps
	@tools/sanitize

format:
	@git ls-files '*.h' '*.cpp' | xargs clang-format -i

clean:
	@rm -rf $(BUILD)
