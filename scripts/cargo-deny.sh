#!/usr/bin/env bash
# Runs cargo-deny, and builds it once when it is not installed.
set -euo pipefail

version=0.20.2
if ! command -v cargo-deny >/dev/null; then
    echo "cargo-deny.sh: building cargo-deny $version, once; it takes some minutes" >&2
    # An unoptimised build is ready sooner, and the tool runs for a second.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0 \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo install --quiet --locked --version $version cargo-deny >&2
fi
PATH=$PATH:${CARGO_INSTALL_ROOT:-${CARGO_HOME:-$HOME/.cargo}}/bin
exec cargo-deny "$@"
