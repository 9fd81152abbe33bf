#!/usr/bin/env bash
# Says in one sentence why cachefs can't be installed or mounted on this machine; silent when it can.
set -euo pipefail

die() {
	echo "$*" >&2
	exit 1
}

[[ $(uname -s) == Linux ]] || die "cachefs needs Linux; this is $(uname -s)."
((EUID == 0)) || die "Mounting needs root: run this with sudo."
IFS=.- read -r major minor _ <<<"$(uname -r)"
((major > 5 || (major == 5 && minor >= 6))) ||
	die "cachefs needs Linux 5.6 or newer for io_uring; this kernel is $(uname -r)."
command -v apt-get >/dev/null ||
	die "apt-get is missing: this installs its packages on Debian and Ubuntu only."
[[ -c /dev/fuse ]] || modprobe fuse 2>/dev/null || true
[[ -c /dev/fuse ]] ||
	die "/dev/fuse is missing: load the kernel's fuse module, or give the container the device (--device /dev/fuse --cap-add SYS_ADMIN)."
( : <>/dev/fuse) 2>/dev/null ||
	die "/dev/fuse can't be opened: the container needs the device and CAP_SYS_ADMIN (--device /dev/fuse --cap-add SYS_ADMIN)."
