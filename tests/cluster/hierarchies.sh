#!/usr/bin/env bash
# Control groups (cgroups) of version 1 for a node of the test cluster, apart from those of the machine.
#
#   hierarchies.sh NAME enter COMMAND...   becomes COMMAND
#   hierarchies.sh NAME remove             removes what it made, once nothing runs in it
#   hierarchies.sh NAME try                says on standard error why it cannot be done here
#
# COMMAND sees the hierarchies that SLURM takes below /sys/fs/cgroup, by mounts of its own; their top is a cgroup
# NAME that is made for it, which it believes to be the machine's (a cgroup namespace). Neither the machine's
# mounts nor its cgroups change, but for NAME.
set -euo pipefail
exec unshare --mount --propagation private bash -c '
    set -euo pipefail
    point=/sys/fs/cgroup name=$1 verb=$2
    shift 2
    hierarchies="cpuset memory freezer devices"

    show() {
        for one in $hierarchies; do mount -t cgroup -o "$one" cgroup "$point/$one"; done
    }

    mount -t tmpfs -o mode=0755,size=1m tmpfs "$point"
    for one in $hierarchies; do mkdir "$point/$one"; done
    show
    case $verb in
    enter)
        for one in $hierarchies; do mkdir -p "$point/$one/$name"; done
        # A new cpuset is empty, and takes no process.
        for one in cpus mems; do cat "$point/cpuset/cpuset.$one" >"$point/cpuset/$name/cpuset.$one"; done
        for one in $hierarchies; do
            echo $$ >"$point/$one/$name/cgroup.procs"
            umount "$point/$one"
        done
        export -f show
        export point hierarchies
        exec unshare --cgroup bash -c "set -euo pipefail; show; unset -f show; unset point hierarchies; exec \"\$@\"" \
            enter "$@"
        ;;
    remove)
        for one in $hierarchies; do
            [ ! -d "$point/$one/$name" ] || find "$point/$one/$name" -depth -type d -exec rmdir {} +
        done
        ;;
    esac
' hierarchies "$@"
