#!/usr/bin/env bash
# The Debian packages of `make deb`: names, dependencies, contents. Arguments: build folder, source folder, cpack.
set -euo pipefail
build=$1 source=$2 cpack=$3
for tool in dpkg-shlibdeps dpkg-deb file; do
  command -v $tool >/dev/null || { echo "skipped: no $tool (tools/install-deps --deb brings it)"; exit 77; }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
version=$(head -n1 "$source/VERSION")

"$cpack" --config "$build/CPackConfig.cmake" -B "$tmp" >"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "cpack"; }
package() { ls "$tmp"/"$1"_"$version"_*.deb 2>/dev/null || fail "no package $1: $(ls "$tmp")"; }
program=$(package ebclr)
library=$(package "libebclr${version%.*}")
development=$(package libebclr-dev)
for p in "$program" "$library"; do
  depends=$(dpkg-deb -f "$p" Depends)
  # By shlibdeps; OpenBLAS by hand, because any BLAS would satisfy libtorch.
  for want in libtorch libc6 libopenblas0-openmp; do
    [[ $depends == *$want* ]] || fail "$p does not depend on $want: $depends"
  done
done
[[ $(dpkg-deb -f "$development" Depends) == *"libebclr${version%.*} (= $version)"*libtorch-dev* ]] ||
  fail "dependencies of libebclr-dev: $(dpkg-deb -f "$development" Depends)"
for p in "$program" "$library" "$development"; do dpkg-deb -x "$p" "$tmp/root"; done
[ "$("$tmp/root/usr/bin/ebclr" --version)" = "ebclr $version" ] || fail "the packaged program's version"
"$tmp/root/usr/bin/ebclr" config list | grep quick/ebclr_cifar10 >/dev/null || fail "the packaged program does not run"
for f in bin/ebclr libexec/ebclr/ebclr share/man/man1/ebclr-train.1 include/ebclr/ebclr.h \
  share/bash-completion/completions/ebclr; do
  [ -e "$tmp/root/usr/$f" ] || fail "usr/$f is in no package"
done
echo "deb: three packages, $(du -ch "$tmp"/*.deb | tail -n1 | cut -f1)"
