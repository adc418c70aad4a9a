#!/usr/bin/env bash
# Shows that the model's invariants hold it: each deliberately broken variant in protocol/mutants/ must be caught, by
# the very invariant that its header names.
#
#   scripts/model-mutants.sh [MUTANT…]     all of them by default
#
# A mutant is a module that replaces operators of Lazaret by its own `M_…`; its instance is mutants/INSTANCE.cfg.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
mutants=$root/protocol/mutants
logs=${CARGO_TARGET_DIR:-$root/target}/tlc/mutants
mkdir -p "$logs"
"$root/scripts/tlc.sh" fetch >/dev/null

header() { sed -n "s/^.\* $2: *//p" "$mutants/$1.tla"; }

# The invariant or step property that TLC names.
violated() {
    sed -nE 's/^Error: (Invariant|Action property) ([A-Za-z0-9_]+) is violated.*/\2/p' "$1" | head -n1
}

if [ $# -gt 0 ]; then names=("$@"); else
    mapfile -t names < <(cd "$mutants" && printf '%s\n' *.tla | sed 's/\.tla$//')
fi
escaped=0
printf '%-22s %-12s %-32s %s\n' mutant instance 'caught by' steps
for name in "${names[@]}"; do
    instance=$(header "$name" Instance) meant=$(header "$name" 'Caught by') log=$logs/$name.log
    {
        cat "$mutants/$instance.cfg"
        echo CONSTANTS
        for operator in $(header "$name" Replaces); do echo "    $operator <- M_$operator"; done
    } >"$logs/$name.cfg"
    # TLC ends with an error, as it should.
    TLC_DIRECTORY=$mutants "$root/scripts/tlc.sh" check "$name.tla" "$logs/$name.cfg" >"$log" 2>&1 || true
    caught=$(violated "$log")
    if [ "$caught" = "$meant" ]; then
        printf '%-22s %-12s %-32s %s\n' "$name" "$instance" "$caught" "$(grep -c '^State [0-9]' "$log")"
    else
        echo "model-mutants.sh: $name should be caught by $meant, but was by ${caught:-nothing}; see $log" >&2
        escaped=$((escaped + 1))
    fi
done
[ $escaped = 0 ] || { echo "model-mutants.sh: $escaped of ${#names[@]} escaped" >&2; exit 1; }
echo "all ${#names[@]} mutants are caught"
