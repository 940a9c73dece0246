#!/usr/bin/env bash
# Run a command so that other users can reach this checkout, at its own path.
#
# Jobs on the test cluster run as an ordinary user, and other tests are other accounts. Where a
# folder above the checkout is closed to others (a clone below root's home), the command runs in a
# mount namespace of its own, in which that folder is open. What lies in it is there with the modes
# that it has, but beside the way to the checkout. Nothing outside the namespace changes.
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
    echo "other accounts cannot run $1: it lies in $closed, which is closed to others" >&2
    exec "$@"
    ;;
esac
exec unshare --mount --propagation private bash -c '
    set -euo pipefail
    here=$1 closed=$2
    shift 2
    old=$(mktemp -d)
    mount --bind "$closed" "$old"
    mount -t tmpfs -o mode=0755,size=16m tmpfs "$closed"
    way=${here#"$closed"/}
    shopt -s dotglob nullglob
    for entry in "$old"/*; do
        name=${entry##*/}
        [ "$name" != "${way%%/*}" ] || continue
        if [ -d "$entry" ] && [ ! -L "$entry" ]; then
            mkdir "$closed/$name"
        elif [ -f "$entry" ] && [ ! -L "$entry" ]; then
            touch "$closed/$name"
        else
            cp -P "$entry" "$closed/$name" 2>/dev/null || true
            continue
        fi
        mount --bind "$entry" "$closed/$name"
    done
    mkdir -p "$here"
    mount --bind "$old/$way" "$here"
    umount "$old"
    rmdir "$old"
    cd "$here"
    exec "$@"
' reachable "$here" "$closed" "$@"
