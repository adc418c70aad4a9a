#!/usr/bin/env bash
# Shows Lazaret at work on a machine that has nothing but Rust: installs what is missing, builds,
# makes an image and a sample project, and runs sessions in a sandbox that say what they reach.
#
#   scripts/demo.sh           the tour (make demo)
#   scripts/demo.sh shell     a session of your own in the tour's project
#   scripts/demo.sh remove    removes all that the demo made, except installed packages
#
# Everything runs as an unprivileged user: as you, or, started by root, as a user 'lazaret-demo' made
# for it. It may be run again at any time.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

say() { printf '\n\e[1m== %s\e[0m\n' "$*"; }
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then echo "\$ sudo $*"; sudo "$@"
    else echo "demo.sh: this needs root, and there is no sudo: $*" >&2; exit 1
    fi
}

if [ "$(id -u)" = 0 ]; then user=lazaret-demo; base=/var/tmp/lazaret-demo
else user=$(id -un); base=/var/tmp/lazaret-demo-$user
fi

# Runs a program as the user, with nothing of this environment.
as_user() {
    local own=(env -i HOME="$base/home" USER="$user" LANG=C.UTF-8 TERM="${TERM:-dumb}" XDG_RUNTIME_DIR="$base/run"
        PATH="$base/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" "$@")
    if [ "$(id -u)" = 0 ]; then setpriv --reuid="$user" --regid="$user" --clear-groups -- "${own[@]}"
    else "${own[@]}"
    fi
}

# Counts the subordinate ids that the file grants to the user.
subordinate() { awk -F: -v user="$user" '$1 == user { sum += $3 } END { print sum + 0 }' "$1" 2>/dev/null || echo 0; }

# Grants the user 65536 subordinate ids behind all that are granted.
grant() {
    local first
    first=$(awk -F: '$2 + $3 > last { last = $2 + $3 } END { print last < 100000 ? 100000 : last }' "$1" 2>/dev/null || echo 100000)
    as_root usermod "$2" "$first-$((first + 65535))" "$user"
}

case ${1:-tour} in
    tour) ;;
    shell)
        [ -x "$base/bin/lazaret" ] || { echo "demo.sh: run 'make demo' first" >&2; exit 1; }
        as_user sh -c 'cd ~/project && exec lazaret up -- bash'
        exit ;;
    remove)
        if [ -x "$base/bin/lazaret" ] && [ -d "$base/home/project" ]; then
            as_user sh -c 'cd ~/project && lazaret down --yes' || true
        fi
        if [ -d "$base" ]; then
            # Some files belong to subordinate ids.
            if [ "$(id -u)" = 0 ]; then rm -rf "$base"
            else unshare --map-root-user --map-auto -- rm -rf "$base"
            fi
        fi
        if [ "$user" = lazaret-demo ] && id "$user" >/dev/null 2>&1; then userdel "$user"; fi
        echo "removed"
        exit ;;
    *) echo "usage: demo.sh [shell|remove]" >&2; exit 2 ;;
esac

say "Installing what is missing"
scripts/deps.sh demo

say "Building"
cargo build --locked --release
built=
for candidate in "${CARGO_TARGET_DIR:-target}"/*/release/lazaret "${CARGO_TARGET_DIR:-target}"/release/lazaret; do
    if [ -x "$candidate" ] && [ -z "$built" ]; then built=$candidate; fi
done
[ -n "$built" ] || { echo "demo.sh: the build left no lazaret below ${CARGO_TARGET_DIR:-target}" >&2; exit 1; }

say "An unprivileged user"
if [ "$user" = lazaret-demo ] && ! id "$user" >/dev/null 2>&1; then
    echo "Started by root, so everything runs as a user of its own: $user"
    useradd --user-group --no-create-home --home-dir "$base/home" --shell /bin/bash "$user"
fi
if [ "$(subordinate /etc/subuid)" -lt 65536 ]; then grant /etc/subuid --add-subuids; fi
if [ "$(subordinate /etc/subgid)" -lt 65536 ]; then grant /etc/subgid --add-subgids; fi
for device in /dev/fuse /dev/net/tun; do
    if ! as_user test -r $device -a -w $device; then
        echo "$device is opened to everybody, as distributions have it by default"
        as_root chmod 0666 $device
    fi
done
echo "user $user, $(subordinate /etc/subuid) subordinate ids, no privileges"

say "An image, made here from Debian packages"
mkdir -p "$base/bin" "$base/home" "$base/run"
chmod 755 "$base"
install -m755 "$built" "$(dirname "$built")/lazaret-guest" scripts/demo-session.sh "$base/bin/"
packages=(git python3 vim less procps curl)
stamp=$(sha256sum scripts/base-image.sh | cut -c1-12)-${packages[*]}
if [ "$(cat "$base/image.stamp" 2>/dev/null)" = "$stamp" ] && [ -e "$base/image/index.json" ]; then
    echo "made before: $base/image"
else
    scripts/base-image.sh "$base/image" "${packages[@]}"
    echo "$stamp" >"$base/image.stamp"
    echo "made: $base/image"
fi
if [ "$(id -u)" = 0 ]; then chown "$user:$user" "$base/home" "$base/run"; fi
chmod 700 "$base/run"

as_user "$base/bin/demo-session.sh" "$base/image"

say "Your turn"
cat <<EOF
scripts/demo.sh shell      opens a shell in this sandbox
scripts/demo.sh remove     removes what the demo made
make install; lazaret init; lazaret doctor      for your own projects
EOF
