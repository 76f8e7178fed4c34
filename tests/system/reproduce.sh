#!/usr/bin/env bash
# A study from its file to its report, with runs that are interrupted, fail, or are found done.
source "$(dirname "$0")/lib.sh"

cat >mine.yaml <<'YAML'
title: two methods on shapes
judges: [knn]
reference: ebclr
rows: {axis: method, key: method.name, values: [simclr, ebclr]}
fixed: {data.source: shapes, data.limit: 120, encoder.width: 8, train.batch_size: 16, train.epochs: 3,
        buffer.size: 120, sampler.steps: 2, log.every: 1, checkpoint.keep_every: 1}
claims:
  - {says: EBCLR beats SimCLR, kind: better, rows: ebclr, than: simclr}
YAML

# The list and the plan.
"$EBCLR" reproduce list >list.txt
grep -q '^table1 ' list.txt || fail "no table1 in the list"
[ "$(grep -c '' list.txt)" -ge 18 ] || fail "the list is short"
"$EBCLR" reproduce mine.yaml --scale tiny --plan >plan.txt
grep -q '2 to do (0 done, 0 cannot run)' plan.txt || fail "plan: $(cat plan.txt)"
[ ! -e reproduction/runs ] || fail "a plan ran something"

# Workers in this folder: others may be at a study of their own on this machine.
own_workers() {
  local pid
  for pid in $(pgrep -f "reproduce-worker reproduction/workers"); do
    [ "$(readlink "/proc/$pid/cwd")" != "$WORK" ] || echo "$pid"
  done
}

# Killed outright in the middle of a run: the worker goes too, and the same command goes on.
"$EBCLR" reproduce mine.yaml --scale tiny >/dev/null 2>&1 &
parent=$!
for _ in $(seq 300); do
  compgen -G 'reproduction/runs/*/metrics.jsonl' >/dev/null && break
  sleep 0.1
done
kill -9 $parent
wait $parent 2>/dev/null || true
for _ in $(seq 100); do
  pids=$(own_workers)
  [ -z "$pids" ] && break
  sleep 0.1
done
[ -z "$pids" ] || fail "a worker outlived its parent"
"$EBCLR" reproduce mine.yaml --scale tiny >first.txt 2>first.err || fail "second try: $(cat first.err)"
for file in report.html report.md results.csv; do
  [ -s reproduction/mine/$file ] || fail "$file is missing"
done
grep -q 'EBCLR beats SimCLR' first.txt || fail "no verdict: $(cat first.txt)"
grep -q 'mine,tiny,ebclr,,0,knn,shapes,3,' reproduction/mine/results.csv || fail "no last point of ebclr"

# Found done: nothing is trained again and the numbers are the same.
cp reproduction/mine/results.csv before.csv
before=$(stat -c %Y.%s reproduction/runs/*/summary.json)
"$EBCLR" reproduce mine.yaml --scale tiny >second.txt 2>&1
grep -q '0 to do (2 done, 0 cannot run)' second.txt || fail "second: $(cat second.txt)"
[ "$before" = "$(stat -c %Y.%s reproduction/runs/*/summary.json)" ] || fail "a finished run was touched"
cmp before.csv reproduction/mine/results.csv || fail "the numbers changed"

# What was found, kept without the weights and put back elsewhere, is as good as the runs.
results=$ROOT/tools/results
bash "$results" keep reproduction kept >/dev/null || fail "nothing was kept"
[ "$(ls kept | wc -l)" = 2 ] || fail "kept: $(ls kept)"
[ -z "$(find kept -name '*.safetensors' -o -name metrics.jsonl)" ] || fail "more than findings was kept"
bash "$results" restore elsewhere kept >/dev/null || fail "nothing was put back"
"$EBCLR" reproduce mine.yaml --scale tiny --out elsewhere >put_back.txt 2>&1
grep -q '0 to do (2 done, 0 cannot run)' put_back.txt || fail "put back: $(cat put_back.txt)"
cmp before.csv elsewhere/mine/results.csv || fail "the numbers changed on the way"

# A part, as JSON.
"$EBCLR" reproduce mine.yaml --scale tiny --only method=simclr --out part --json >part.json 2>/dev/null
grep -q '"verdict": "undecided at this scale"' part.json || fail "part: $(cat part.json)"

# A run that fails is in the table, the other is done, and the exit code says so.
sed 's/train.epochs: 3/train.epochs: 2/; s/values: .*/values: [{id: bad, set: {method.name: simclr, train.batch_size: 500}}, {id: good, set: {method.name: simclr}}]}/; s/, key: method.name//; /reference/d; /claims/,$d; s/, train.batch_size: 16//' mine.yaml >failing.yaml
expect_error 1 '1 runs failed' "$EBCLR" reproduce failing.yaml --scale tiny
grep -q 'fewer than train.batch_size 500' reproduction/failing/report.md || fail "the failure is not in the report"
grep -q 'failing,tiny,good,,0,knn,shapes,2,' reproduction/failing/results.csv || fail "the good run is missing"

# A set that is not here blocks its runs only.
sed 's/data.source: shapes, //; s/^fixed/columns: {axis: data, key: data.source, values: [shapes, cifar10]}\nfixed/' mine.yaml >two.yaml
"$EBCLR" reproduce two.yaml --scale tiny --no-fetch >two.txt 2>&1
grep -q 'cifar10 is not here' two.txt || fail "two: $(cat two.txt)"
grep -q 'cifar10 is not here' reproduction/two/report.md || fail "the report does not say what is missing"
grep -q '2 to do\|(2 done, 2 cannot run)' two.txt || fail "two: $(cat two.txt)"

# Several processes, as on several hosts, share one folder: each run is taken once.
sed 's/values: \[simclr, ebclr\]/values: [simclr, moco, byol, ebclr]/' mine.yaml >shared.yaml
for who in a b; do
  "$EBCLR" reproduce shared.yaml --scale tiny --out shared --threads 1 >$who.txt 2>$who.err &
  echo $! >$who.pid
done
wait "$(cat a.pid)" || fail "a: $(cat a.err)"
wait "$(cat b.pid)" || fail "b: $(cat b.err)"
[ "$(cat a.err b.err | grep '^done ' | grep -vc 'by another process')" = 4 ] || fail "not each run once: $(cat a.err b.err)"
for who in a b; do
  grep '^done ' $who.err | grep -vq 'by another process' || fail "$who took none: $(cat a.err b.err)"
  grep -q 'EBCLR beats SimCLR' $who.txt || fail "$who wrote no report: $(cat $who.txt)"
done
[ "$(grep -c ',knn,shapes,3,' shared/shared/results.csv)" = 4 ] || fail "shared: $(cat shared/shared/results.csv)"
[ -z "$(ls shared/workers)" ] || fail "left behind: $(ls shared/workers)"

# One of them hangs in the middle of a run: the other does all the rest and waits. It dies: the other takes its run over.
"$EBCLR" reproduce shared.yaml --scale tiny --out taken --threads 1 >/dev/null 2>&1 &
parent=$!
for _ in $(seq 600); do
  compgen -G 'taken/runs/*/metrics.jsonl' >/dev/null && break
  sleep 0.05
done
worker=$(pgrep -P $parent) || fail "no worker"
kill -STOP $worker $parent
trap 'kill -9 $worker $parent 2>/dev/null || true; rm -rf "$WORK"' EXIT
"$EBCLR" reproduce shared.yaml --scale tiny --out taken --threads 1 >b.txt 2>b.err &
second=$!
for _ in $(seq 1200); do
  [ "$(grep -c '^done ' b.err)" -ge 3 ] && break
  sleep 0.1
done
sleep 1
[ "$(grep -c '^done ' b.err)" = 3 ] && kill -0 $second || fail "it did not wait for the fourth: $(cat b.err)"
kill -9 $worker $parent
wait $parent 2>/dev/null || true
wait $second || fail "the one that is left: $(cat b.err)"
[ "$(grep '^done ' b.err | grep -vc 'by another process')" = 4 ] || fail "not taken over: $(cat b.err)"
[ "$(grep -c ',knn,shapes,3,' taken/shared/results.csv)" = 4 ] || fail "taken: $(cat taken/shared/results.csv)"
cut -d, -f1-8,10-13 shared/shared/results.csv >one.csv
cut -d, -f1-8,10-13 taken/shared/results.csv >two.csv
cmp one.csv two.csv || fail "what was taken over came out differently"

# The plan as data, with a command for each run: what a job array wants.
ln -sf "$EBCLR" ebclr
"$EBCLR" reproduce mine.yaml --scale tiny --out 'array job' --plan --json >plan.json
[ "$(grep -c '"state": "to do"' plan.json)" = 2 ] || fail "plan: $(cat plan.json)"
sed -n 's/.*"command": "\(.*\)".*/\1/p' plan.json >commands
[ "$(grep -c '' commands)" = 2 ] || fail "commands: $(cat plan.json)"
while read -r command; do PATH=.:$PATH sh -c "$command" 2>array.err </dev/null || fail "$command: $(cat array.err)"; done <commands
[ ! -e 'array job/mine' ] || fail "one run of an array wrote a report"
"$EBCLR" reproduce mine.yaml --scale tiny --out 'array job' --plan --json | grep -c '"state": "done"' | grep -qx 2 || fail "not done"
"$EBCLR" reproduce mine.yaml --scale tiny --out 'array job' --report-only >report.txt
grep -q 'EBCLR beats SimCLR' report.txt || fail "no report"

# Interrupted, it names all that was asked for; a report of nothing is none.
"$EBCLR" reproduce mine.yaml --scale tiny --out 'cut short' --no-fetch --threads 1 --jobs 2 >/dev/null 2>cut.err &
parent=$!
for _ in $(seq 300); do
  compgen -G 'cut short/runs/*/metrics.jsonl' >/dev/null && break
  sleep 0.1
done
kill -INT $parent
code=0
wait $parent || code=$?
[ "$code" = 130 ] || fail "exit code $code after SIGINT: $(cat cut.err)"
grep -qF "ebclr reproduce mine.yaml --scale tiny --out 'cut short' --jobs 2 --no-fetch --threads 1" cut.err || fail "not the same command: $(cat cut.err)"
mkdir hollow
expect_error 2 "hollow: holds no runs" "$EBCLR" reproduce mine.yaml --scale tiny --out hollow --report-only
[ -z "$(ls hollow)" ] || fail "a report of nothing: $(ls hollow)"
expect_error 2 "no run 'nonsense'" "$EBCLR" reproduce mine.yaml --scale tiny --run nonsense

expect_error 2 "did you mean 'table1'" "$EBCLR" reproduce tabel1
expect_error 2 'tiny, small, medium, paper' "$EBCLR" reproduce table1 --scale large
expect_error 2 'axis=value' "$EBCLR" reproduce table1 --scale tiny --only colour=red
echo "reproduce: ok"
