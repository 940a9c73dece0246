#!/usr/bin/env bash
# Run a command in this checkout, inside a tree of another Debian suite: its SLURM, its Python.
#
#   suite.sh trixie make VENV=.suites/venv-trixie test-slurm
#
# The tree is made once by debootstrap in .suites/ of the checkout, and is whole or not there. The
# command sees the checkout as /opt/penstock, a /dev and a /tmp of its own, and of the environment
# only what pip, make and the tests take. Needs root on Debian; nothing outside .suites/ changes.
set -euo pipefail
suite=$1
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
tree=$here/.suites/$suite

fail() {
    echo "the tests on $suite cannot run here: $*" >&2
    exit 1
}

[[ $suite =~ ^[a-z]+$ ]] || fail "$suite is no name of a suite"
[ "$(id -u)" -eq 0 ] || fail "a tree of another suite is made and entered as root"
command -v apt-get >/dev/null || fail "only where there is apt-get"

if [ ! -d "$tree" ]; then
    apt-get update -qq || echo "apt-get update failed: going on with the lists that are here" >&2
    if ! command -v debootstrap >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null ||
            fail "debootstrap cannot be installed"
    fi
    # From where this machine's own packages come.
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Component: main' 'Origin: Debian' \
        "Codename: $(. /etc/os-release && echo "$VERSION_CODENAME")" | head -n 1)
    [ -n "$mirror" ] || fail "apt names no place that Debian's packages come from"
    # An older debootstrap has no script for a suite that is newer: those of all later ones are alike.
    script=/usr/share/debootstrap/scripts/$suite
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
    # The compiler: not every package has a wheel for the newest Python.
    packages=ca-certificates,gcc,libc6-dev,make,procps,python3,python3-dev,python3-venv
    new=$here/.suites/new-$suite
    echo "Making a tree of $suite (once) ..."
    for attempt in 1 2 3; do
        rm -rf "$new"
        mkdir -p "$new"
        if debootstrap --variant=minbase --include="$packages" "$suite" "$new" "$mirror" "$script" \
            >"$here/.suites/$suite.log" 2>&1; then
            break
        fi
        [ "$attempt" -lt 3 ] || { tail -n 5 "$here/.suites/$suite.log" >&2; fail "debootstrap failed"; }
    done
    # Of a suite that moves, a mirror that lags behind serves a release file past its date. Who signed it is
    # checked all the same.
    echo 'Acquire::Check-Valid-Until "false";' >"$new/etc/apt/apt.conf.d/90-late-mirror"
    mkdir -p "$new/opt/penstock"
    mv "$new" "$tree"
fi

# Whom this machine trusts, the tree trusts; names are looked up as here.
cp /etc/resolv.conf /etc/hosts "$tree/etc/"
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    cp /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/"
fi
given=(HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
while IFS= read -r name; do
    given+=("$name=${!name}")
done < <(compgen -e | grep -xE 'CI|PIP_.*|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|(https?|no)_proxy|(HTTPS?|NO)_PROXY|PENSTOCK_TEST_ALL')

exec unshare --mount --propagation private bash -c '
    set -euo pipefail
    here=$1 tree=$2
    shift 2
    mount --bind "$tree" "$tree"
    mount -t proc proc "$tree/proc"
    mount -t sysfs -o ro sysfs "$tree/sys"
    mount -t tmpfs -o mode=1777 tmpfs "$tree/tmp"
    # Never the devices of this machine: a tree that removes one would remove it for all.
    mount -t tmpfs -o mode=0755,size=1m tmpfs "$tree/dev"
    while read -r name major minor; do
        mknod -m 666 "$tree/dev/$name" c "$major" "$minor"
    done <<<"null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
fuse 10 229"
    mkdir "$tree/dev/shm" "$tree/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$tree/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$tree/dev/pts"
    ln -s pts/ptmx "$tree/dev/ptmx"
    ln -s /proc/self/fd "$tree/dev/fd"
    mount --bind "$here" "$tree/opt/penstock"
    exec chroot "$tree" /usr/bin/env -i "$@"
' suite "$here" "$tree" "${given[@]}" bash -c 'cd /opt/penstock && exec "$@"' suite "$@"
