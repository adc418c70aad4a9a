#!/usr/bin/env bash
# Replays traces of protocol events against the model.
#
#   scripts/trace.sh FILE.jsonl…   each must be accepted
#   scripts/trace.sh samples       those of protocol/traces: accepted/ must be accepted, rejected/ must not
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
logs=${CARGO_TARGET_DIR:-$root/target}/tlc/traces
mkdir -p "$logs"
"$root/scripts/tlc.sh" fetch >/dev/null

# Says `accepted`, or `rejected` and how far the trace was matched.
replay() {
    local trace=$1 name directory log
    name=$(basename "$trace" .jsonl)
    directory=$logs/$name log=$logs/$name.log
    mkdir -p "$directory"
    cp "$root"/protocol/{Lazaret,TraceLazaret}.tla "$directory/"
    python3 "$root/scripts/trace.py" "$trace" >"$directory/TraceData.tla"
    TLC_DIRECTORY=$directory TLC_WORKERS=1 "$root/scripts/tlc.sh" check TraceLazaret.tla \
        "$root/protocol/TraceLazaret.cfg" >"$log" 2>&1 || true
    if grep -q '^Error: Invariant Unfinished is violated' "$log"; then
        echo accepted
    elif grep -q '^Model checking completed. No error has been found' "$log"; then
        local matched
        matched=$(sed -nE 's/^<<"matched", ([0-9]+)>>$/\1/p' "$log" | tail -n1)
        echo "rejected after event ${matched:-0} of $(grep -c . "$trace"): $(grep . "$trace" | sed -n "$((${matched:-0} + 1))p")"
    else
        echo "failed: see $log"
    fi
}

expect() { # EXPECTED FILE…
    local expected=$1 said
    shift
    for trace in "$@"; do
        said=$(replay "$trace")
        case $said in
            $expected*) echo "$(basename "$trace"): $said" ;;
            *) echo "trace.sh: $trace should be $expected, but was $said" >&2; wrong=$((wrong + 1)) ;;
        esac
    done
}

wrong=0
case ${1:-} in
    '') sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    samples)
        expect accepted "$root"/protocol/traces/accepted/*.jsonl
        expect rejected "$root"/protocol/traces/rejected/*.jsonl
        ;;
    *) expect accepted "$@" ;;
esac
[ $wrong = 0 ]
