#!/usr/bin/env bash
# Installs what this machine lacks for building (build), testing (test), checking the code (check) and benchmarking
# (bench), and fetches libfuse's source where the system's libfuse won't do. A second run does nothing.
#
#   scripts/setup.sh [build] [test] [check] [bench]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
	echo "setup.sh: $*" >&2
	exit 1
}

packages_of() {
	case $1 in
	build) echo gcc libc6-dev pkgconf meson ninja-build python3 ca-certificates tar gzip xz-utils kmod mount \
		liburing-dev libcurl4-openssl-dev libxxhash-dev liblz4-dev liblmdb-dev libxml2-dev libjansson-dev \
		libmicrohttpd-dev libssl-dev libcmocka-dev ;;
	test) echo git openssl procps e2fsprogs nginx iproute2 iptables python3-venv python3-pip python3-pytest \
		python3-pytest-timeout python3-numpy python3-h5py python3-torch ;;
	check) echo git clang clang-format clang-tidy "$(sanitizer_runtime)" shellcheck ;;
	# nginx is the benchmarks' origin, iproute2 and iptables make their links.
	bench) echo fio rclone s3fs procps openssl nginx iproute2 iptables ;;
	*) die "'$1' is not something to set up: say build, test, check or bench" ;;
	esac
}

# clang's sanitizers are a package of their own, named after the clang that the distribution calls 'clang'.
sanitizer_runtime() {
	local version
	version=$(apt-cache depends clang 2>/dev/null | sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
	if [[ -z $version ]]; then
		apt-get update >&2 || true
		version=$(apt-cache depends clang | sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
	fi
	echo "libclang-rt-${version:-14}-dev"
}

missing_of() {
	local package
	for package in "$@"; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
	done
}

# The first try takes the package lists as they are; only when that fails are they fetched anew.
install_missing() {
	local -a missing
	local -a apt=(apt-get -o DPkg::Lock::Timeout=600 install -y -q --no-install-recommends)

	mapfile -t missing < <(missing_of "$@")
	((${#missing[@]})) || return 0
	((EUID == 0)) || die "these packages are missing and only root can install them: ${missing[*]}"
	echo "setup.sh: installing ${missing[*]}" >&2
	export DEBIAN_FRONTEND=noninteractive
	"${apt[@]}" "${missing[@]}" >/dev/null 2>&1 </dev/null && return 0
	apt-get update -q >&2 </dev/null || true
	"${apt[@]}" "${missing[@]}" >&2 </dev/null || die "apt-get could not install: ${missing[*]}"
}

command -v apt-get >/dev/null ||
	die "apt-get is missing: this script knows Debian and Ubuntu; elsewhere install what it lists and libfuse >= 3.18"

kinds=("$@")
((${#kinds[@]})) || kinds=(build)
packages=()
for kind in "${kinds[@]}"; do
	found=$(packages_of "$kind")
	read -r -a found <<<"$found"
	packages+=("${found[@]}")
done
install_missing "${packages[@]}"

for kind in "${kinds[@]}"; do
	case $kind in
	build) scripts/fetch_libfuse.sh ;;
	test) scripts/test_tools.sh ;;
	esac
done
