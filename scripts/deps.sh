#!/usr/bin/env bash
# Installs what Lazaret needs at run time, for its tests and for its benchmark, on Debian 12.
#
#   scripts/deps.sh run     what a user needs: runsc, slirp4netns, uidmap, umoci, fuse3, git
#   scripts/deps.sh demo    run + mmdebstrap, which makes the demo's image
#   scripts/deps.sh test    demo + what the test suite drives (registry, terminals, traces, the model checker)
#   scripts/deps.sh bench   test + the peers that the benchmark compares with
#
# Uses apt as root or through sudo. The backports line is derived from the machine's own
# apt sources, so that a mirror stays that mirror.
set -euo pipefail

level=${1:-test}
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/sbin:/sbin
run=(slirp4netns uidmap umoci fuse3 git ca-certificates iproute2 procps)
demo=(mmdebstrap gcc libc6-dev make)
test=(docker-registry skopeo tmux strace bubblewrap python3 python3-pip default-jre-headless apache2-utils)
bench=(podman hyperfine crun netavark)

case $level in
    run) want=("${run[@]}") ;;
    demo) want=("${run[@]}" "${demo[@]}") ;;
    test) want=("${run[@]}" "${demo[@]}" "${test[@]}") ;;
    bench) want=("${run[@]}" "${demo[@]}" "${test[@]}" "${bench[@]}") ;;
    *) echo "deps.sh: '$level' is none of run, demo, test, bench" >&2; exit 2 ;;
esac

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else echo "deps.sh: installing packages needs root or sudo: $*" >&2; exit 1
    fi
}

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# The runsc of plain bookworm is too old (design: at least 20240729), so it comes from backports.
runsc_is_recent() {
    local stamp
    stamp=$(runsc --version 2>/dev/null | head -n1 | grep -oE '20[0-9]{6}' | head -n1)
    [ -n "$stamp" ] && [ "$stamp" -ge 20240729 ]
}

missing=()
for package in "${want[@]}"; do installed "$package" || missing+=("$package"); done
export DEBIAN_FRONTEND=noninteractive
need_runsc=no
runsc_is_recent || need_runsc=yes
if [ ${#missing[@]} -eq 0 ] && [ $need_runsc = no ]; then
    echo "deps.sh: everything for '$level' is installed"
    exit 0
fi

if [ $need_runsc = yes ] && ! apt-cache policy 2>/dev/null | grep -q 'n=bookworm-backports'; then
    read -r uri key < <("$here/apt-source.sh" || true) || true
    if [ -z "${uri:-}" ]; then
        echo "deps.sh: no apt source for bookworm found; add bookworm-backports by hand" >&2
        exit 1
    fi
    {
        echo "Types: deb"
        echo "URIs: $uri"
        echo "Suites: bookworm-backports"
        echo "Components: main"
        if [ -n "${key:-}" ]; then echo "Signed-By: $key"; fi
    } | as_root tee /etc/apt/sources.list.d/lazaret-backports.sources >/dev/null
fi

as_root apt-get -q update >/dev/null
if [ ${#missing[@]} -gt 0 ]; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "${missing[@]}"
fi
if [ $need_runsc = yes ]; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends -t bookworm-backports install runsc
fi
echo "deps.sh: installed what '$level' needs"
