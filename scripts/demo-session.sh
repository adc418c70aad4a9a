#!/usr/bin/env bash
# The part of the demo that a developer would do: configure, and work in a sandbox. Started by demo.sh.
#
#   demo-session.sh LAYOUT
#
# Every claim is tried, and a claim that does not hold makes the demo fail.
set -euo pipefail

layout=$1
project=$HOME/project
failures=0

say() { printf '\n\e[1m== %s\e[0m\n' "$*"; }
run() { printf '\e[2m$ %s\e[0m\n' "$*"; "$@"; }

# Prints a claim and whether the command confirms it.
claim() {
    local text=$1
    shift
    if "$@" >/tmp/.lazaret-demo-output.$$ 2>&1; then printf '  \e[32myes\e[0m  %s\n' "$text"
    else
        printf '  \e[31mNO\e[0m   %s\n' "$text"
        sed 's/^/         /' /tmp/.lazaret-demo-output.$$
        failures=$((failures + 1))
    fi
    rm -f /tmp/.lazaret-demo-output.$$
}
inside() { lazaret run -- sh -c "$1"; }
not_inside() { ! lazaret run -- sh -c "$1"; }

say "A project and a profile"
mkdir -p "$project"
cd "$project"
lazaret down --yes >/dev/null 2>&1 || true
find . -mindepth 1 -delete
cat >greet.py <<'EOF'
def greeting(name):
    return "hello " + name

print(greeting("world"))
EOF
git init --quiet --initial-branch=main
git config user.name "Demo Developer"
git config user.email "developer@example.invalid"
git add greet.py
git commit --quiet --message "a greeting"
# A hook that a sandboxed commit must not run, and a secret that no agent needs.
printf '#!/bin/sh\ntouch "%s/hook-ran"\n' "$HOME" >.git/hooks/post-commit
chmod +x .git/hooks/post-commit
rm -f "$HOME/hook-ran"
echo "the developer's secret" >"$HOME/secret"

mkdir -p "$HOME/.config/lazaret/profiles"
echo 'default_profile = "demo"' >"$HOME/.config/lazaret/config.toml"
cat >"$HOME/.config/lazaret/profiles/demo.toml" <<EOF
image = "oci:$layout:latest"
user = "dev"
command = ["bash"]
# The sandbox stays for a while after its last session, so that the next one joins it.
linger = "30s"

[network]
# Private networks are denied in any case; this is where cloud machines serve credentials.
deny = ["169.254.0.0/16"]

[workspace]
isolate_ignored = false
EOF
sed 's/^/    /' "$HOME/.config/lazaret/profiles/demo.toml"
run lazaret config check
if lazaret help | grep -q '^  doctor'; then run lazaret doctor; fi

say "Preparing the image"
run lazaret image prepare "oci:$layout:latest"

say "A session edits and commits"
begin=$(date +%s%N)
run lazaret run -- sh -c 'sed -i "s/hello/good morning/" greet.py && python3 greet.py && git commit --quiet --all --message "a better greeting, from the sandbox"'
echo "(the whole of it, with the sandbox's cold start: $((($(date +%s%N) - begin) / 1000000)) ms)"
run git --no-pager log --format='%h %an: %s'
claim "the edited file is the developer's on the host" test "$(stat -c %U greet.py)" = "$(id -un)"
claim "the host's post-commit hook did not run in the sandbox, nor on the host" test ! -e "$HOME/hook-ran"

say "What runs now"
run lazaret status
begin=$(date +%s%N)
inside true
echo "(one more command joined in $((($(date +%s%N) - begin) / 1000000)) ms)"

say "What the sandbox is"
claim "its kernel is gVisor, not the host's" inside 'dmesg | grep -q gVisor'
claim "sessions run as user dev, without root" inside 'test "$(id -un)" = dev'
claim "a terminal session has a terminal of the right size" \
    sh -c 'script -qec "stty rows 33 columns 101; lazaret up -- stty size" /dev/null </dev/null | grep -q "33 101"'
claim "exit statuses come through" sh -c 'lazaret run -- sh -c "exit 42"; test $? = 42'

say "What it does not reach: the host's files"
claim "the developer's home directory is not there" not_inside "test -e '$HOME/secret'"
claim "no host process is visible" not_inside "ps -e -o args | grep -v grep | grep -q 'lazaret: '"
claim ".git/config can be read" inside 'git config user.name >/dev/null'
claim ".git/config cannot be written" not_inside 'echo "[core]" >> .git/config'
claim "nor replaced" not_inside 'cp .git/config /tmp/c && mv /tmp/c .git/config'
claim "the host's hooks are hidden" not_inside 'test -e .git/hooks/post-commit'
claim "a hook written inside never reaches the host" \
    sh -c 'lazaret run -- sh -c "echo evil > .git/hooks/pre-push" ; test ! -e .git/hooks/pre-push'
claim "a file written elsewhere in the sandbox stays there" \
    sh -c 'lazaret run -- sh -c "echo x > /home/dev/lazaret-demo-file" && test ! -e /home/dev/lazaret-demo-file'

say "What it does not reach: private networks and this machine"
python3 -m http.server --bind 127.0.0.1 18089 --directory "$project" >/dev/null 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
for _ in $(seq 100); do curl -s -o /dev/null http://127.0.0.1:18089/ && break; sleep 0.05; done
claim "the host reaches its own server on 127.0.0.1" curl -sf -o /dev/null http://127.0.0.1:18089/
claim "the sandbox does not" not_inside 'curl -s -m 3 -o /dev/null http://127.0.0.1:18089/'
claim "not by way of the gateway either" not_inside 'curl -s -m 3 -o /dev/null http://10.0.2.2:18089/'
for address in 10.1.2.3 172.16.1.1 192.168.1.1 169.254.169.254; do
    claim "nothing at $address" not_inside "curl -s -m 3 -o /dev/null http://$address/"
done
claim "a public address has a route out (nothing is sent)" inside 'python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((\"198.51.100.7\", 9))
assert s.getsockname()[0] == \"10.0.2.100\", s.getsockname()"'
claim "a private one has none" inside 'python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((\"192.168.1.1\", 9))
assert s.getsockname()[0] != \"10.0.2.100\", s.getsockname()"'

say "Taking it down"
run lazaret down
claim "nothing is left running" sh -c "! pgrep -u '$(id -u)' -f '[l]azaret: |[r]unsc|[s]lirp4netns'"
claim "the host's .git/config is as it was" sh -c 'test "$(git config user.name)" = "Demo Developer"'

if [ $failures -gt 0 ]; then
    printf '\n\e[31m%s claims do not hold.\e[0m\n' $failures
    exit 1
fi
printf '\nEvery claim above was tried just now and holds.\n'
