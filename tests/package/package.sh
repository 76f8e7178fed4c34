#!/usr/bin/env bash
# The installed package as another project meets it: install, find_package, build the examples, run them; pkg-config;
# add_subdirectory. Arguments: build folder, source folder, cmake.
set -euo pipefail
build=$1 source=$2 cmake=$3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

"$cmake" --install "$build" --prefix "$tmp/usr" >"$tmp/log" || { cat "$tmp/log"; fail "install"; }
lib=$(dirname "$(find "$tmp/usr" -name 'libebclr.so')")
[ -x "$tmp/usr/bin/ebclr" ] || fail "the program is not installed"
[ "$("$tmp/usr/bin/ebclr" --version)" = "ebclr $(head -n1 "$source/VERSION")" ] || fail "the installed program's version"
"$tmp/usr/bin/ebclr" config list | grep quick/ebclr_cifar10 >/dev/null || fail "the installed launcher does not find the program"
for f in share/man/man1/ebclr.1 share/man/man1/ebclr-train.1 share/bash-completion/completions/ebclr \
  share/zsh/vendor-completions/_ebclr share/fish/vendor_completions.d/ebclr.fish; do
  [ -s "$tmp/usr/$f" ] || fail "$f is not installed"
done
# Only the public namespace is visible.
leaked=$(nm -DC --defined-only "$lib/libebclr.so" | grep -E ' ebclr::(core|data|nn|cpu|ebm|engine|methods|run|train|eval)::' || true)
[ -z "$leaked" ] || fail "internal names are exported: $(head -n3 <<<"$leaked")"

# The Python module lies where Debian's Python looks when the prefix is /usr/local.
module=$(find "$tmp/usr" -name 'ebclr.*.so' -path '*/python*')
if [ -n "$module" ]; then
  folder=$(dirname "$module")
  /usr/bin/python3 -c 'import site, sys; sys.exit(sys.argv[1] not in site.getsitepackages())' "/usr/local${folder#"$tmp/usr"}" ||
    fail "Python does not look in PREFIX${folder#"$tmp/usr"} (an old build folder? cmake -U EBCLR_PYTHON_DIR $build)"
  [ -s "$folder/ebclr-stubs/__init__.pyi" ] || fail "the types of the Python module are not installed"
  if /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    PYTHONPATH="$folder" /usr/bin/python3 -c 'import ebclr' || fail "the installed Python module does not load"
  fi
fi

# Only the public headers may be used: the sources are out of reach here.
cp -r "$source/examples" "$tmp/examples"
cat >>"$tmp/examples/CMakeLists.txt" <<'EOF'
get_target_property(options ebclr::ebclr INTERFACE_COMPILE_OPTIONS)
get_target_property(definitions ebclr::ebclr INTERFACE_COMPILE_DEFINITIONS)
if(options OR definitions)
  message(FATAL_ERROR "flags leak to users: ${options} ${definitions}")
endif()
EOF
"$cmake" -S "$tmp/examples" -B "$tmp/b" -G Ninja -DCMAKE_PREFIX_PATH="$tmp/usr" -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS="-g0 -Wall -Wextra" >"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "find_package(ebclr)"; }
"$cmake" --build "$tmp/b" -j 2 >"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "the examples do not compile"; }
! grep -q 'examples/.*warning\|include/ebclr/.*warning' "$tmp/log" || { cat "$tmp/log"; fail "warnings"; }

# The headers need the libtorch of the library: another version is passed over.
mkdir "$tmp/torch"
echo 'message(FATAL_ERROR "another libtorch was taken")' >"$tmp/torch/TorchConfig.cmake"
printf 'set(PACKAGE_VERSION 99.0.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n' >"$tmp/torch/TorchConfigVersion.cmake"
"$cmake" -S "$tmp/examples" -B "$tmp/b99" -G Ninja -DCMAKE_PREFIX_PATH="$tmp/usr" -DTorch_DIR="$tmp/torch" >"$tmp/log" 2>&1 || true
! grep -q 'another libtorch was taken' "$tmp/log" || fail "find_package(ebclr) takes any libtorch"

# The page that a stranger reads: its first program with its own CMakeLists.txt, and its other pieces in one source.
# block N LANGUAGE: the N-th block of that language in docs/library.md.
block() { awk -v n="$1" -v lang="\`\`\`$2" '$0 == lang { on = ++k == n; next } /^```/ { on = 0 } on' "$source/docs/library.md"; }
mkdir "$tmp/page"
block 1 cpp >"$tmp/page/embed.cpp"
block 1 cmake >"$tmp/page/CMakeLists.txt"
{
  echo '#include <ebclr/ebclr.h>'
  echo '#include <iostream>'
  block 3 cpp | sed -n '1,/^};/p'
  block 4 cpp | sed '/^options\./d'
  echo 'torch::Tensor use(const torch::Tensor& pixels) {'
  block 2 cpp
  echo 'return features + energy + samples.images.sum() + projections.sum(); }'
  echo 'ebclr::Outcome learn() {'
  block 3 cpp | sed '1,/^};/d' | sed 's/^ebclr::Training training/options.method = std::make_shared<AlignUniform>();\n&/'
  echo 'return outcome; }'
} >"$tmp/page/pieces.cpp"
printf 'add_library(pieces OBJECT pieces.cpp)\ntarget_link_libraries(pieces PRIVATE ebclr::ebclr)\n' >>"$tmp/page/CMakeLists.txt"
"$cmake" -S "$tmp/page" -B "$tmp/page/b" -G Ninja -DCMAKE_PREFIX_PATH="$tmp/usr" -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS=-g0 >"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "docs/library.md: its CMakeLists.txt"; }
"$cmake" --build "$tmp/page/b" -j 2 >"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "docs/library.md: its code does not compile"; }

"$tmp/b/train_observer" "$tmp/run" 6 >"$tmp/out" || { cat "$tmp/out"; fail "train_observer"; }
cat "$tmp/out"
grep -q 'stopped, can be resumed at step 6' "$tmp/out" || fail "train_observer did not stop at step 6"
grep -q 'features of 10 images: 64 columns' "$tmp/out" || fail "train_observer's features"
mkdir -p "$tmp/photos"
for i in 1 2 3; do
  { printf 'P6\n20 16\n255\n'; head -c 960 /dev/urandom; } >"$tmp/photos/$i.ppm"
done
"$tmp/b/embed_folder" "$tmp/run" "$tmp/photos" >"$tmp/features.csv" || fail "embed_folder"
[ "$(wc -l <"$tmp/features.csv")" = 3 ] || fail "embed_folder wrote $(wc -l <"$tmp/features.csv") lines"
[ "$(head -n1 "$tmp/features.csv" | tr ',' '\n' | wc -l)" = 65 ] || fail "embed_folder's columns"
[ "$("$tmp/page/b/embed" "$tmp/run" "$tmp/photos" | grep -c ' is most like .*ppm$')" = 3 ] || fail "docs/library.md: its first program"
if "$tmp/b/embed_folder" "$tmp/nowhere" "$tmp/photos" 2>"$tmp/err"; then fail "a missing run went unnoticed"; fi
grep -q 'no such run folder' "$tmp/err" || fail "message of a missing run: $(cat "$tmp/err")"
"$tmp/b/own_sampler" | tee "$tmp/out"
awk '/Metropolis/ { exit !($3 > 1.99 && $3 < 2.05 && $4 > 0.185 && $4 < 0.215) }' "$tmp/out" ||
  fail "the own sampler's moments are off"

if command -v pkg-config >/dev/null; then
  export PKG_CONFIG_PATH="$lib/pkgconfig"
  # shellcheck disable=SC2046
  ${CXX:-g++} -std=c++17 -g0 "$source/examples/own_sampler.cpp" -o "$tmp/by_pc" $(pkg-config --cflags --libs ebclr) ||
    fail "pkg-config's flags"
  LD_LIBRARY_PATH="$lib" "$tmp/by_pc" >/dev/null || fail "a program made with pkg-config's flags"
fi

# As a part of another project: configures, names no tests, leaves the project's own settings alone.
mkdir "$tmp/outer"
cat >"$tmp/outer/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(outer LANGUAGES CXX)
add_subdirectory("$source" ebclr EXCLUDE_FROM_ALL)
file(WRITE \${CMAKE_BINARY_DIR}/main.cpp "#include <ebclr/ebclr.h>\nint main() { return ebclr::version().empty(); }\n")
add_executable(outer \${CMAKE_BINARY_DIR}/main.cpp)
target_link_libraries(outer PRIVATE ebclr::ebclr)
if(CMAKE_CXX_STANDARD OR CMAKE_RUNTIME_OUTPUT_DIRECTORY OR TARGET core_test)
  message(FATAL_ERROR "ebclr changes the project around it")
endif()
EOF
"$cmake" -S "$tmp/outer" -B "$tmp/outer/b" -G Ninja -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >"$tmp/log" 2>&1 ||
  { cat "$tmp/log"; fail "add_subdirectory"; }
command=$(grep '"command".*/outer/b/main.cpp' "$tmp/outer/b/compile_commands.json") || fail "no command for the outer program"
if grep -qE -- '-Wall|-fvisibility|-fno-math-errno|-fopenmp|FMT_SHARED|-I[^ ]*/src' <<<"$command"; then
  fail "flags leak through add_subdirectory: $command"
fi
# Building the library a second time would take too long here; a source that uses it must compile.
compile=$(sed -E 's/^ *"command": "//; s/",?$//; s/ -o .* -c / -fsyntax-only -c /' <<<"$command")
bash -c "cd '$tmp/outer/b' && $compile" 2>"$tmp/log" || { cat "$tmp/log"; fail "a source of the project around ebclr does not compile"; }
echo "package: installed, found, built, ran"
