#!/usr/bin/env bash
# Run a command so that other users can reach this checkout, at its own path.
#
# Jobs on the test cluster run as an ordinary user. Where a folder above the checkout is closed to
# others (a clone below root's home), the command runs in a mount namespace of its own, in which
# that folder shows nothing but the way to the checkout. Nothing outside the namespace changes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)

closed=
folder=$here
while [ "$folder" != / ]; do
    [ $((8#$(stat -c %a "$folder") & 1)) -ne 0 ] || closed=$folder
    folder=$(dirname "$folder")
done
if [ -z "$closed" ] || [ "$closed" = "$here" ] || [ "$(id -u)" -ne 0 ]; then
    exec "$@"
fi
case $(readlink -f "$1") in
"$closed"/*)
    echo "jobs cannot run $1: it lies in $closed, which is closed to others" >&2
    exec "$@"
    ;;
esac
exec unshare --mount --propagation private bash -c '
    set -euo pipefail
    here=$1 closed=$2
    shift 2
    aside=$(mktemp -d)
    mount --bind "$here" "$aside"
    mount -t tmpfs -o mode=0755,size=16m tmpfs "$closed"
    mkdir -p "$here"
    mount --bind "$aside" "$here"
    umount "$aside"
    rmdir "$aside"
    cd "$here"
    exec "$@"
' reachable "$here" "$closed" "$@"
