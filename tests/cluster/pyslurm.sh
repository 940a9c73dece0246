#!/usr/bin/env bash
# Build pyslurm for the SLURM of this machine, into a folder that is whole or not there.
#
#   pyslurm.sh .suites/pyslurm-forky
#
# PyPI's newest release, 25.11.2, takes SLURM 25.11 alone. With 26.05 it builds after two steps: its version
# names that release, and three names of the C interface are given by macros, of which the first is SLURM's own.
# For other releases nothing is built: tests take the stand-in. Needs root on Debian for the headers.
set -euo pipefail
folder=$1
version=25.11.2
digest=sha256:6e0e4bc639ea3177591b102b77c1dd8df55a9e411ac42ef339a4adb3908cca34

[ ! -d "$folder" ] || exit 0
release=$(dpkg-query -W -f '${Version}' slurm-client | sed -nE 's/^([0-9]+)\.0?([0-9]+).*/\1.\2/p')
case $release in
25.11) flags= ;;
26.5) flags="-DSLURM_BACKWARD_COMPAT -Dslurm_free_ctl_conf=slurm_free_conf -DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=-1" ;;
*)
    echo "pyslurm is not built: $version does not fit SLURM $release. Tests of it take the stand-in."
    exit 0
    ;;
esac

if [ ! -e /usr/include/slurm/slurm_version.h ]; then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends libslurm-dev >/dev/null
fi
library=$(find /usr/lib -name libslurmfull.so -print -quit)
[ -n "$library" ] || { echo "pyslurm cannot be built: no libslurmfull.so below /usr/lib" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "Building pyslurm $version for SLURM $release (once) ..."
python3 -m venv "$work/venv"
pip=("$work/venv/bin/python" -m pip --disable-pip-version-check -q)
"${pip[@]}" install cython==3.3.1 setuptools wheel packaging
echo "pyslurm==$version --hash=$digest" >"$work/wanted"
"${pip[@]}" download --no-deps --no-build-isolation --no-binary pyslurm --require-hashes -r "$work/wanted" -d "$work"
tar -xf "$work/pyslurm-$version.tar.gz" -C "$work"
if [ "$release" != "${version%.*}" ]; then
    sed -i "s/^__version__ = .*/__version__ = \"$release+pyslurm$version\"/" "$work/pyslurm-$version/pyslurm/version.py"
fi
mkdir -p "$(dirname "$folder")"
rm -rf "$folder.new"
CFLAGS="-O0 $flags" PYSLURM_BUILD_JOBS=2 SLURM_INCLUDE_DIR=/usr/include SLURM_LIB_DIR=$(dirname "$library") \
    PATH="$work/venv/bin:$PATH" "${pip[@]}" install --no-deps --no-build-isolation --no-index \
    --target "$folder.new" "$work/pyslurm-$version"
chmod -R a+rX "$folder.new"
mv "$folder.new" "$folder"
