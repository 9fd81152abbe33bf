#!/usr/bin/env bash
# From a fresh clone to the main job: installs what is needed, builds, mounts.
#
#   scripts/quickstart.sh                          shows cachefs at work on a model and a dataset that it makes itself
#   scripts/quickstart.sh SOURCE [MOUNTPOINT]      mounts SOURCE (default: on /mnt/cachefs) and leaves it mounted
#
# SOURCE: s3://bucket[/prefix], hf://org/repo, http(s)://host/path/ or file:///dir. Of S3 the usual environment counts:
# AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL for a server that is not AWS.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

case ${1:-} in
-h | --help)
	sed -n '2,/^set /{ /^#/s/^# \{0,1\}//p }' "$0"
	exit 0
	;;
esac
if (($# > 2)); then
	echo "quickstart.sh: at most a SOURCE and a MOUNTPOINT are taken, not $# arguments" >&2
	exit 2
fi

"$root/scripts/check_machine.sh"
[[ -x $root/build/prefix/bin/cachefs ]] || echo "Building; the first time takes some minutes."
cachefs=$("$root/scripts/build.sh")

# What is mounted on a path, by the kernel's table alone: a dead mount must not be touched.
mounted_on() {
	awk -v path="$1" '{ gsub(/\\040/, " ", $5) } $5 == path { n = 6; while ($n != "-") n++; found = $(n + 2) }
		END { if (found == "") exit 1; print found }' /proc/self/mountinfo
}

mount_source() {
	local source=$1 made='' mountpoint mounted
	mountpoint=$(realpath -m -s "${2:-/mnt/cachefs}")
	if mounted=$(mounted_on "$mountpoint"); then
		if [[ ${mounted%/} != "${source%/}" ]]; then
			echo "quickstart.sh: $mounted is mounted on $mountpoint: unmount it, or name another MOUNTPOINT" >&2
			exit 1
		fi
		echo "$mounted is mounted on $mountpoint already."
	else
		[[ -e $mountpoint ]] || made=$mountpoint
		mkdir -p "$mountpoint"
		"$cachefs" mount "$source" "$mountpoint" || {
			[[ -z $made ]] || rmdir "$made"
			exit 1
		}
		echo "$source is mounted on $mountpoint."
	fi
	"$cachefs" status
	echo
	printf "To unmount: %q umount %q\n" "$cachefs" "$mountpoint"
}

work=

# Only processes that carry this run's control socket in their environment are ended.
demo_processes() {
	local pid
	for pid in /proc/[0-9]*; do
		grep -qszxF "CACHEFS_CONTROL=$work/control.sock" "$pid/environ" && echo "${pid#/proc/}"
	done
	return 0
}

clean_up() {
	local status=$? pid tries=100
	trap - EXIT
	trap '' INT TERM
	if mounted_on "$work/mnt" >/dev/null; then
		demo umount --no-drain "$work/mnt" >/dev/null 2>&1 || umount -l "$work/mnt" || true
	fi
	for pid in $(demo_processes); do
		kill "$pid" 2>/dev/null || true
	done
	while [[ -n $(demo_processes) ]]; do
		if ((tries-- == 0)); then
			for pid in $(demo_processes); do
				kill -KILL "$pid" 2>/dev/null || true
			done
			break
		fi
		sleep 0.1
	done
	rm -rf --one-file-system "$work"
	exit "$status"
}

demo() {
	env CACHEFS_STORE="$work/store" CACHEFS_CONTROL="$work/control.sock" CACHEFS_SIZE=2G "$cachefs" "$@"
}

run_demo() {
	work=$(mktemp -d /var/tmp/cachefs-quickstart.XXXXXX)
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	mkdir "$work"/{origin,store,mnt}

	echo "Making a model and a dataset in $work/origin"
	/usr/bin/python3 "$root/scripts/demo.py" make "$work/origin"
	echo "+ cachefs mount file://$work/origin $work/mnt"
	demo mount "file://$work/origin" "$work/mnt"
	/usr/bin/python3 "$root/scripts/demo.py" read "$work/origin" "$work/mnt"
	echo "+ cachefs status"
	demo status
	echo "+ cachefs umount $work/mnt"
	demo umount "$work/mnt"
	echo "Done. To mount your own: scripts/quickstart.sh s3://bucket/prefix /mnt/data"
}

if (($#)); then
	mount_source "$@"
else
	run_demo
fi
