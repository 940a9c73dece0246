#!/usr/bin/env bash
# The programs that the tests use beside Python: installed when this is root on Debian or Ubuntu,
# else named in one message. Nothing of it is needed to run penstock itself. It fails only with
# PENSTOCK_TEST_ALL=1, where nothing may be left out.
set -euo pipefail

declare -A package=(
    [slurmctld]=slurmctld [slurmd]=slurmd [slurmdbd]=slurmdbd [sbatch]=slurm-client [munged]=munge
    [mariadbd]=mariadb-server [xxhsum]=xxhash [setfacl]=acl [rsync]=rsync
    [mkfs.ext4]=e2fsprogs [mount]=mount [ip]=iproute2 [git]=git [strace]=strace [fusermount3]=fuse3
    [bindfs]=bindfs [mkfs.xfs]=xfsprogs [mkfs.btrfs]=btrfs-progs [eatmydata]=eatmydata [cc]=gcc
    [linux.uml]=user-mode-linux [ssh-keygen]=openssh-client [vsftpd]=vsftpd
    [zsh]=zsh [fish]=fish [man]=man-db [mandoc]=mandoc [fio]=fio
    [apache2]=apache2 [nginx]=nginx-light [caddy]=caddy [lighttpd]=lighttpd
    [promtool]=prometheus [chromium]=chromium
    [pipx]=pipx [podman]=podman [runc]=runc [debootstrap]=debootstrap
)

export PATH="$PATH:/usr/sbin:/sbin:/usr/local/sbin"
missing=()
for program in "${!package[@]}"; do
    command -v "$program" >/dev/null || missing+=("${package[$program]}")
done
# gcc alone compiles nothing: the C library's headers are only recommended with it.
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
compgen -G '/usr/lib/*/slurm*/auth_jwt.so' >/dev/null || missing+=(slurm-wlm-jwt-plugin)
[ ${#missing[@]} -eq 0 ] && exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "Some tests will say that they cannot run: this machine lacks ${missing[*]}." >&2
    echo "On Debian or Ubuntu, as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 0
fi

echo "Installing ${missing[*]} ..."
export DEBIAN_FRONTEND=noninteractive
# A service that starts by itself would meet the tests' own: it must not.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
for attempt in 1 2 3; do
    if apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; then
        exit 0
    fi
    echo "apt-get failed (attempt $attempt)" >&2
done
echo "Some tests will say that they cannot run: apt-get could not install ${missing[*]}." >&2
[ "${PENSTOCK_TEST_ALL:-}" != 1 ]
