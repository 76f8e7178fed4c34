# Machines that are not as the developer's: locales, no home, a home that cannot be written, a full folder for temporaries,
# a clock that goes backwards, output that nobody reads, no AVX2, no memory.
source "$(dirname "$0")/lib.sh" "$1"

train() { "$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1 --out "$@"; }
train plain
want=$(final_weights plain)

# A locale with a decimal comma, one whose i is not ours, one that is not installed, none at all. Where the machine does not
# have them they are made here, if it can.
mkdir locales
for locale in de_DE tr_TR; do
  ! command -v localedef >/dev/null || localedef -i $locale -f UTF-8 locales/$locale.UTF-8 2>/dev/null || rm -rf locales/$locale.UTF-8
done
if [ -d locales/de_DE.UTF-8 ]; then
  export LOCPATH=$WORK/locales
  [ "$(LC_ALL=de_DE.UTF-8 bash -c 'printf %.1f 1,5')" = 1,5 ] || fail "no decimal comma in the locale that was made"
else
  echo "strange: localedef or its sources are not here; locales with a decimal comma are those that are installed, if any"
fi
for locale in de_DE.UTF-8 tr_TR.UTF-8 C.UTF-8 no_SUCH POSIX; do
  rm -rf run
  LC_ALL=$locale LANG=$locale train run
  [ "$(final_weights run)" = "$want" ] || fail "other weights with the locale $locale"
  case $locale in no_SUCH | C.UTF-8 | POSIX) continue ;; esac
  LC_ALL=$locale "$EBCLR" train --resume run --epochs 2 --quiet --threads 1 || fail "cannot resume with the locale $locale"
  LC_ALL=$locale "$EBCLR" config show --set optimizer.lr=0.125 --set train.epochs=3 >shown.txt
  grep -q '0\.125' shown.txt || fail "a number is read or written otherwise with the locale $locale"
done
unset LOCPATH

# No HOME, and one that cannot be written: only what needs a cache says so.
rm -rf run
env -u HOME -u XDG_CACHE_HOME -u EBCLR_DATA "$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1 --out run
[ "$(final_weights run)" = "$want" ] || fail "other weights without HOME"
expect_error 2 "pass --data-root" env -u HOME -u XDG_CACHE_HOME -u EBCLR_DATA "$EBCLR" data list
rm -rf run
env -u XDG_CACHE_HOME -u EBCLR_DATA HOME=/proc/nowhere "$EBCLR" train "${SMALL_EBCLR[@]}" --epochs 1 --out run
[ "$(final_weights run)" = "$want" ] || fail "other weights with a HOME that cannot be written"
env -u XDG_CACHE_HOME -u EBCLR_DATA HOME=/proc/nowhere "$EBCLR" data list >/dev/null || fail "data list, HOME not writable"
# A folder of pictures, small enough to need no cache file, then one that is asked for.
mkdir photos
for i in 1 2 3 4 5 6 7 8; do { printf 'P6\n16 16\n255\n'; head -c 768 /dev/urandom; } >photos/$i.ppm; done
FOLDER=(--data photos --image-size 16 --epochs 1 --quiet --threads 1 --set encoder.width=8 --set head.out=8
  --set train.batch_size=4 --set buffer.size=8 --set sampler.steps=1)
"$EBCLR" train "${FOLDER[@]}" --out home
env -u HOME -u XDG_CACHE_HOME -u EBCLR_DATA "$EBCLR" train "${FOLDER[@]}" --out homeless || fail "a folder of pictures without HOME"
[ "$(final_weights home)" = "$(final_weights homeless)" ] || fail "other weights of a folder without HOME"
expect_error 2 "pass --data-root" env -u HOME -u XDG_CACHE_HOME -u EBCLR_DATA \
  "$EBCLR" train "${FOLDER[@]}" --set data.cache=disk --out cached

# Temporaries lie beside what they become: /tmp may be full or absent.
rm -rf run
TMPDIR=/proc/nowhere train run || fail "TMPDIR that is not there"
[ "$(final_weights run)" = "$want" ] || fail "other weights without TMPDIR"
mkdir full
if mount -t tmpfs -o size=4k tmpfs full 2>/dev/null; then
  trap 'umount "$WORK/full"; rm -rf "$WORK"' EXIT
  dd if=/dev/zero of=full/x bs=4k count=2 2>/dev/null && fail "the folder for temporaries is not full"
  rm -rf run
  TMPDIR=$WORK/full train run || fail "a full TMPDIR"
  [ "$(final_weights run)" = "$want" ] || fail "other weights with a full TMPDIR"
else
  echo "strange: nothing can be mounted here; a full folder for temporaries was not tried"
fi

# Cores that we may not use: an affinity mask, a limit meant for OpenMP, a quota of the group.
threads_of() { # COMMAND...: threads that a training takes by itself
  rm -rf run
  "$@" "$EBCLR" train --data shapes --limit 16 --epochs 1 --out run --set encoder.width=8 --set head.out=8 \
    --set train.batch_size=8 --set buffer.size=16 --set sampler.steps=1 --quiet >/dev/null 2>err.txt || fail "$* ($(cat err.txt))"
  sed -nE 's/.*"threads": *([0-9]+).*/\1/p' run/provenance.json | head -n 1
}
if [ "$(nproc)" -gt 1 ]; then
  first=$(taskset -pc $$ | sed -E 's/.*: *([0-9]+).*/\1/')
  [ "$(threads_of taskset -c "$first")" = 1 ] || fail "an affinity mask is not respected"
  [ "$(threads_of env OMP_NUM_THREADS=1)" = 1 ] || fail "OMP_NUM_THREADS is not respected"
  # A group of our own, where that is permitted (root, and the controller at hand).
  group=
  for folder in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
    mkdir "$folder/ebclr-$$" 2>/dev/null || continue
    group=$folder/ebclr-$$
    [ ! -e "$group/cpu.cfs_quota_us" ] || { echo 100000 >"$group/cpu.cfs_period_us" && echo 100000 >"$group/cpu.cfs_quota_us"; }
    [ ! -e "$group/cpu.max" ] || echo "100000 100000" >"$group/cpu.max"
    [ -e "$group/cpu.cfs_quota_us" ] || [ -e "$group/cpu.max" ] && break
    rmdir "$group"
    group=
  done
  if [ -n "$group" ]; then
    code=0
    got=$(threads_of bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group") || code=$?
    rmdir "$group"
    [ "$code/$got" = 0/1 ] || fail "a quota of one core is not respected: '$got'"
  else
    echo "strange: no group can be made here; a quota of the group was not tried"
  fi
else
  echo "strange: one core only; limits on cores were not tried"
fi

# Output that nobody reads, or that is closed.
set +o pipefail
"$EBCLR" config keys 2>err.txt | head -1 >/dev/null
[ ! -s err.txt ] || fail "config keys | head: $(cat err.txt)"
set -o pipefail
# A reader that is gone before the first word; what is printed at once would not notice `head`.
exec 3> >(exit 0)
sleep 0.3
for command in "data list" "config keys" "--help"; do
  code=0
  env --default-signal=PIPE "$EBCLR" $command >&3 2>err.txt || code=$?
  [ "$code" = 141 ] && [ ! -s err.txt ] || fail "$command into a closed pipe: exit code $code, '$(cat err.txt)'"
done
exec 3>&-
code=0
"$EBCLR" config keys >&- 2>err.txt || code=$?
[ "$code" -le 1 ] || fail "closed stdout: exit code $code, $(cat err.txt)"
[ "$(grep -c 'unexpected' err.txt)" = 0 ] || fail "closed stdout: $(cat err.txt)"
rm -rf run
train run >&- 2>&- || fail "training with stdout and stderr closed"
[ "$(final_weights run)" = "$want" ] || fail "other weights with closed outputs"
[ "$(head -c 1 run/config.yaml)" = m ] || fail "something was printed into a file of the run"
if [ -w /dev/full ]; then
  code=0
  "$EBCLR" config keys >/dev/full 2>err.txt || code=$?
  [ "$code" = 1 ] || fail "a full disk behind stdout: exit code $code"
fi

# A clock that goes backwards while a run is resumed.
if command -v faketime >/dev/null; then
  rm -rf run
  train run
  cp -r run past
  "$EBCLR" train --resume run --epochs 2 --quiet --threads 2
  faketime '2001-01-01 00:00:00' "$EBCLR" train --resume past --epochs 2 --quiet --threads 2 || fail "resumed in the past"
  grep -q '^2001' past/train.log || fail "the clock was not turned back"
  [ "$(final_weights past)" = "$(final_weights run)" ] || fail "other weights with a clock set back"
else
  echo "strange: faketime is not here; a clock that goes backwards was not tried"
fi

# A processor without AVX2, masked and as qemu imitates one: the engine steps aside by itself.
rm -rf run
EBCLR_INSTRUCTIONS=none train run || fail "without AVX2, masked"
grep -q "torch (this processor has no AVX2" run/train.log || fail "the log does not say why torch runs the encoder"
if command -v qemu-x86_64 >/dev/null; then
  rm -rf run
  # The program proper: what a launcher starts would run on the real processor again.
  proper=$(dirname "$EBCLR")/libexec/ebclr
  [ -x "$proper" ] || proper=$EBCLR
  qemu-x86_64 -cpu Nehalem "$proper" train --data shapes --limit 8 --epochs 1 --threads 1 --out run --set encoder.width=8 \
    --set head.out=8 --set head.hidden=8 --set train.batch_size=8 --set buffer.size=8 --set sampler.steps=1 2>err.txt >/dev/null ||
    fail "without AVX2: $(cat err.txt)"
  grep -q "torch (this processor has no AVX2" run/train.log || fail "the log does not say why torch runs the encoder"
else
  echo "strange: qemu-user is not here; a processor without AVX2 was not tried"
fi

# Memory that is not there: one line, no stack trace.
if (ulimit -v 3000000) 2>/dev/null; then
  code=0
  (ulimit -v 3000000; "$EBCLR" train "${SMALL_EBCLR[@]}" --set buffer.size=100000000 --out big) 2>err.txt >/dev/null || code=$?
  [ "$code" = 1 ] || fail "exit code $code without memory: $(cat err.txt)"
  grep -q "out of memory" err.txt || fail "not said plainly: $(cat err.txt)"
  [ ! -e big ] || fail "a run that could not begin left a folder"
fi
echo "strange: as everywhere"
