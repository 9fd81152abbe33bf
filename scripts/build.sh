#!/usr/bin/env bash
# Builds cachefs and installs it into build/prefix; prints the path of the program. CC chooses the compiler.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export CC=${CC:-cc}
dir=build/release
log=build/build.log

scripts/setup.sh build

quietly() {
	"$@" >>"$log" 2>&1 </dev/null && return 0
	cat "$log" >&2
	echo "build.sh: failed: $*" >&2
	exit 1
}

mkdir -p build
: >"$log"
# meson keeps the compiler and the paths of its first run, so that another one needs a directory made anew.
configured_for=$(cat "$dir/configured_for" 2>/dev/null || true)
[[ $configured_for == "$CC $root" ]] || rm -rf "$dir"
if [[ ! -f $dir/build.ninja ]]; then
	quietly meson setup "$dir" --prefix="$root/build/prefix"
	echo "$CC $root" >"$dir/configured_for"
fi
quietly ninja -C "$dir"
quietly meson install -C "$dir" --no-rebuild --skip-subprojects
[[ -x build/prefix/bin/cachefs ]] || {
	echo "build.sh: the build made no bin/cachefs" >&2
	exit 1
}
echo "$root/build/prefix/bin/cachefs"
