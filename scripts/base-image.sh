#!/usr/bin/env bash
# Makes a small Debian image as an OCI layout, from packages of the machine's own apt mirror.
#
#   scripts/base-image.sh LAYOUT PACKAGE...
#
# LAYOUT is made whole or not at all; the image in it is named 'latest'. Its user is 'dev' (1000),
# with bash and a home directory. Needs mmdebstrap and umoci; root is not needed where user
# namespaces are allowed, since mmdebstrap then makes one.
set -euo pipefail

[ $# -ge 2 ] || { echo "usage: base-image.sh LAYOUT PACKAGE..." >&2; exit 2; }
layout=$1; shift
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/sbin:/sbin
for program in mmdebstrap umoci; do
    command -v $program >/dev/null || { echo "base-image.sh: $program is not installed; scripts/deps.sh demo" >&2; exit 1; }
done

mkdir -p "$(dirname "$layout")"
work=$(mktemp -d "$(dirname "$layout")/making-XXXXXX")
trap 'rm -rf "$work"' EXIT
# mmdebstrap's own user namespace must be able to enter it.
chmod 755 "$work"

read -r uri key < <("$here/apt-source.sh" || true) || true
mirror=()
[ -n "${uri:-}" ] && mirror=("deb ${key:+[signed-by=$key] }$uri bookworm main")

mmdebstrap --quiet --variant=minbase --include="$(IFS=,; echo "$*")" \
    --customize-hook='chroot "$1" useradd --create-home --uid 1000 --shell /bin/bash dev' \
    --customize-hook='[ ! -e "$1/usr/bin/vim.tiny" ] || ln -sf vim.tiny "$1/usr/bin/vim"' \
    --customize-hook='rm -rf "$1"/usr/share/{doc,man,locale} "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/*' \
    bookworm "$work/root.tar" "${mirror[@]}"

umoci init --layout "$work/layout"
umoci new --image "$work/layout:latest"
umoci raw add-layer --image "$work/layout:latest" "$work/root.tar"
umoci config --image "$work/layout:latest" --config.user dev --config.workingdir /home/dev --config.cmd /bin/bash \
    --config.env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umoci gc --layout "$work/layout" 2>/dev/null
chmod -R a+rX "$work/layout"
rm -rf "$layout"
mv "$work/layout" "$layout"
