#!/usr/bin/env bash
# Checks the bounded instances of the protocol model, and that together they take every action.
#
#   scripts/model.sh [CONFIG…]     the configurations of protocol/, by name without .cfg; all by default
#   scripts/model.sh deep          larger bounds: protocol/deep/*.cfg; hours
#
# Prints for each instance the states and their depth. TLC's own output is kept in target/tlc/.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
logs=${CARGO_TARGET_DIR:-$root/target}/tlc
mkdir -p "$logs"
"$root/scripts/tlc.sh" fetch >/dev/null

# An action of the specification: what a disjunct of some ...Next calls.
actions() {
    sed -n '/^ClientNext(/,/^Next ==/p' "$root/protocol/Lazaret.tla" |
        grep -oE '\b[A-Z][A-Za-z]+\(' | tr -d '(' | grep -vE 'Next$|^(Transactions|Releasable|Intent)$' | sort -u
}

# The actions that a run took at least once. TLC counts one below a quantifier over a variable as a part of its
# ...Next and gives the line, which has no other action.
taken() {
    sed -nE 's/^<([A-Za-z]+) line .* of module Lazaret.*>: [0-9]+:[1-9][0-9]*$/\1/p' "$1"
    sed -nE 's/^<[A-Za-z]*Next line .* of module Lazaret \(([0-9]+) .*>: [0-9]+:[1-9][0-9]*$/\1/p' "$1" |
        while read -r line; do
            sed -n "${line}p" "$root/protocol/Lazaret.tla" | grep -oE '\b[A-Z][A-Za-z]+\(' | tr -d '('
        done
}

whole=no
case ${1:-} in
    '') configs=("$root"/protocol/{Lazaret,MCLazaret*}.cfg) whole=yes ;;
    deep) configs=("$root"/protocol/deep/*.cfg) ;;
    *) configs=("${@/#/$root/protocol/}") && configs=("${configs[@]/%/.cfg}") ;;
esac

printf '%-32s %12s %12s %6s %8s\n' instance 'states found' distinct depth seconds
fired=$logs/fired
: >"$fired"
began=$SECONDS
for config in "${configs[@]}"; do
    name=$(basename "$config" .cfg) log=$logs/$(basename "$config" .cfg).log start=$SECONDS
    module=MCLazaret.tla
    [ "$name" != Lazaret ] || module=Lazaret.tla
    if ! "$root/scripts/tlc.sh" check $module "$config" -coverage 60 >"$log" 2>&1; then
        if grep -q '^Error:' "$log"; then
            echo "model.sh: $name does not hold; $log has the behaviour:" >&2
            grep -E '^Error:|^State [0-9]+:|is violated|Back to state' "$log" | tail -n 80 >&2
        else
            echo "model.sh: $name was not finished; the end of $log:" >&2
            tail -n 5 "$log" >&2
        fi
        exit 1
    fi
    read -r found distinct <<<"$(sed -nE 's/^([0-9]+) states generated, ([0-9]+) distinct.*/\1 \2/p' "$log" | tail -n1)"
    depth=$(sed -nE 's/^The depth of the complete state graph search is ([0-9]+).*/\1/p' "$log")
    printf '%-32s %12s %12s %6s %8s\n' "$name" "$found" "$distinct" "$depth" $((SECONDS - start))
    taken "$log" >>"$fired"
done
echo "all instances hold; $((SECONDS - began)) s in all"

if [ $whole = yes ]; then
    never=$(comm -23 <(actions) <(sort -u "$fired"))
    if [ -n "$never" ]; then
        echo "model.sh: no instance ever takes: ${never//$'\n'/ }" >&2
        exit 1
    fi
    echo "each of the $(actions | wc -l) actions was taken"
fi
