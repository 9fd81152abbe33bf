#!/usr/bin/env bash
# Checks the code without running it: layout, clang-tidy, shellcheck, and what no tracked file may contain.
#
#   scripts/lint.sh [BUILDDIR]      a build directory that meson made with CC=clang; default: one of its own
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
dir=${1:-build/clang}

die() {
	echo "lint.sh: $*" >&2
	exit 1
}

mapfile -t sources < <(git ls-files '*.c' '*.h')
mapfile -t shells < <(git ls-files '*.sh' .ci/run)

clang-format --dry-run -Werror "${sources[@]}" || die "clang-format -i would change these files"
shellcheck -S warning "${shells[@]}" || die "shellcheck finds the above"

# A path of the machine that the file was written on means nothing on another one.
home_paths='/(home|Users)/[a-z]|/root/|/work/[a-z]'
git grep -nIE "$home_paths" -- . ':!scripts/lint.sh' && die "these lines name a path of one machine"
git grep -nIE '[[:blank:]]+$' -- . ':!LICENSE' && die "these lines end with white space"

[[ -f $dir/build.ninja ]] || CC=clang meson setup "$dir" >/dev/null
# Only what the build knows has its flags; headers that the build makes must be there.
ninja --quiet -C "$dir" || die "the code does not compile with clang"
log=$dir/clang-tidy.log
run-clang-tidy -quiet -j "$(nproc)" -p "$dir" "^$root/(cachefs|prefetch|csi|bench|tests)/.*\.c$" >"$log" 2>/dev/null || {
	grep -vE '^clang-tidy|warnings? generated' "$log" >&2
	die "clang-tidy finds the above"
}
