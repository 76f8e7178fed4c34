# The launcher answers as the program would, becomes it otherwise, and completion knows the commands.
source "$(dirname "$0")/lib.sh" "$1"
main=$(dirname "$EBCLR")/libexec/ebclr
[ -x "$main" ] || fail "no program behind the launcher at $main"

# Every help text is the program's own, byte for byte.
commands=$("$main" --help | sed -n '/^Subcommands:/,$p' | sed -nE 's/^  ([a-z]+).*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 10 ] || fail "commands found: $commands"
for c in "" $commands "data get" "eval knn" "config show"; do
  # shellcheck disable=SC2086
  cmp <("$EBCLR" $c --help) <("$main" $c --help) || fail "ebclr $c --help differs"
done
cmp <("$EBCLR" data get -h) <("$main" data get -h) || fail "-h differs"
cmp <("$EBCLR" --version) <("$main" --version) || fail "--version differs"
# Without torch: nothing but the C and C++ libraries is loaded.
! ldd "$EBCLR" | grep -E 'torch|opencv|openblas' >/dev/null || fail "the launcher loads libtorch"

# Exit codes, the process and its arguments are the program's.
expect_error 2 "ebclr --help" "$EBCLR" no-such-command
expect_error 2 "no such run folder" "$EBCLR" eval knn /no/such/run
"$EBCLR" config list >/dev/null || fail "config list"
mkdir -p links && ln -sf "$EBCLR" links/ebclr
links/ebclr config list >/dev/null || fail "through a symbolic link"
mkdir -p alone && cp "$EBCLR" alone/ebclr
alone/ebclr --version >/dev/null || fail "a copied launcher answers --version"
expect_error 1 "other part" alone/ebclr config list
# A signal reaches the program itself: the process is the same.
env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT "$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1000 --out run &
pid=$!
for _ in $(seq 600); do [ -s run/metrics.jsonl ] && break; sleep 0.1; done
# Threads of libgomp must be told before it is loaded that they sleep at barriers.
tr '\0' '\n' </proc/$pid/environ | grep -x OMP_WAIT_POLICY=passive >/dev/null || fail "threads spin beside a neighbour"
kill -TERM $pid
code=0; wait $pid || code=$?
[ $code = 130 ] || fail "SIGTERM through the launcher: exit code $code instead of 130"
# What the user has set stays.
for own in OMP_WAIT_POLICY=active GOMP_SPINCOUNT=7; do
  env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT $own "$EBCLR" train --resume run --quiet --threads 2 &
  pid=$!
  for _ in $(seq 600); do
    [ "$(readlink /proc/$pid/exe)" = "$(realpath "$main")" ] && break
    sleep 0.1
  done
  set_by=$(tr '\0' '\n' </proc/$pid/environ | grep -E '^(OMP_WAIT_POLICY|GOMP_SPINCOUNT)=' || true)
  [ "$set_by" = $own ] || fail "the user said $own, the program hears $set_by"
  kill -TERM $pid
  wait $pid || true
done

# Completion and manual pages of the real commands.
described=$(dirname "$EBCLR")/described
offered() {
  bash -c '. "$1"; shift; COMP_WORDS=(ebclr "$@"); COMP_CWORD=$#; _ebclr; printf "%s\n" "${COMPREPLY[@]}"' - \
    "$described/completion/ebclr.bash" "$@"
}
offered tr | grep -x train >/dev/null || fail "completion of 'tr'"
offered data "" | grep -x get >/dev/null || fail "completion of 'data '"
offered train --config quick/ebclr_c | grep -x quick/ebclr_cifar10 >/dev/null || fail "completion of --config"
offered train --set sampler.st | grep -x sampler.steps= >/dev/null || fail "completion of --set"
offered data get mn | grep -x mnist >/dev/null || fail "completion of 'data get mn'"
[ -s "$described/man/ebclr-train.1" ] || fail "no page ebclr-train.1"
if command -v zsh >/dev/null; then zsh -n "$described/completion/_ebclr" || fail "zsh"; fi
if command -v fish >/dev/null; then fish -n "$described/completion/ebclr.fish" || fail "fish"; fi
if command -v groff >/dev/null; then
  for page in "$described"/man/*.1; do
    warnings=$(groff -man -Tutf8 -ww "$page" 2>&1 >/dev/null | grep -v 'cannot break\|cannot adjust' || true)
    [ -z "$warnings" ] || fail "$page: $warnings"
  done
fi
echo "launcher: ok"
