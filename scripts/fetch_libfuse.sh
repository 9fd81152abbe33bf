#!/usr/bin/env bash
# Puts libfuse's source into subprojects/libfuse unless the system's libfuse is new enough and has custom IO: from the
# project's release where that can be reached, else from a newer suite of the archive that this machine uses anyway.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minimum=3.18
dest=subprojects/libfuse
scratch=

die() {
	echo "fetch_libfuse.sh: $*" >&2
	exit 1
}

clean_up() {
	[[ -z $scratch ]] || rm -rf "$scratch"
	rm -rf "$dest.new"
}

source_version() {
	sed -n "s/^ *version: '\([0-9.]*\).*/\1/p" "$1/meson.build" 2>/dev/null | head -n 1
}

new_enough() {
	[[ -n $1 ]] && dpkg --compare-versions "$1" ge "$minimum"
}

system_will_do() {
	local -a flags
	pkg-config --atleast-version="$minimum" fuse3 2>/dev/null || return 1
	read -r -a flags <<<"$(pkg-config --cflags --libs fuse3)"
	"${CC:-cc}" -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 scripts/custom_io.c "${flags[@]}" -o "$scratch/custom_io" &&
		"$scratch/custom_io" 2>/dev/null
}

# One attempt of five seconds tells whether the release can be reached at all.
from_release() {
	local host
	host=$(sed -n 's|^source_url = https://\([^/]*\)/.*|\1|p' subprojects/libfuse.wrap)
	timeout 5 bash -c "</dev/tcp/$host/443" 2>/dev/null || return 1
	timeout 120 meson subprojects download libfuse >"$scratch/meson.log" 2>&1 </dev/null
	new_enough "$(source_version "$dest")" && return 0
	rm -rf "$dest"
	return 1
}

# The URI of the distribution's own archive, as apt read it from whichever kind of file the machine has.
archive_uri() {
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		awk -v suite="$1" '$2 == suite && $3 == "main" { print $1; exit }'
}

# apt with a state of its own, so that the machine's sources and lists stay as they are. apt checks the signatures.
private_apt() {
	local tool=$1
	shift
	"$tool" -q -o "Dir::State::Lists=$scratch/lists" -o "Dir::Cache=$scratch/cache" -o Dir::Etc::SourceList=/dev/null \
		-o "Dir::Etc::SourceParts=$scratch/sources" -o Acquire::Languages=none -o Acquire::Retries=2 "$@" \
		2>>"$scratch/apt.log" </dev/null
}

from_suite() {
	local uri=$1 suite=$2 keyring=$3 version
	local -a archives

	rm -rf "$scratch"/{lists,cache,sources,source}
	mkdir -p "$scratch"/{lists/partial,cache/archives/partial,sources,source}
	printf 'Types: deb-src\nURIs: %s\nSuites: %s\nComponents: main\n' "$uri" "$suite" >"$scratch/sources/newer.sources"
	[[ ! -e $keyring ]] || echo "Signed-By: $keyring" >>"$scratch/sources/newer.sources"

	private_apt apt-get update >/dev/null || return 1
	version=$(private_apt apt-cache showsrc fuse3 | sed -n 's/^Version: *\([0-9]*:\)\?\([0-9.]*\).*/\2/p' |
		sort -V | tail -n 1)
	new_enough "$version" || return 1
	(cd "$scratch/source" && private_apt apt-get source --download-only fuse3 >/dev/null) || return 1
	archives=("$scratch"/source/fuse3_*.orig.tar.?z)
	mkdir "$dest.new" && tar -xf "${archives[-1]}" -C "$dest.new" --strip-components=1 || return 1
	rm -rf "$dest"
	mv "$dest.new" "$dest" || return 1
	echo "fetch_libfuse.sh: libfuse $version from $suite" >&2
}

from_archive() {
	local id codename suites uri suite
	# shellcheck source=/dev/null
	id=$(. /etc/os-release && echo "$ID")
	# shellcheck source=/dev/null
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	case $id in
	debian) suites="forky sid trixie" ;;
	ubuntu) suites="resolute devel" ;;
	*) return 1 ;;
	esac
	uri=$(archive_uri "$codename")
	[[ -n $uri ]] || return 1
	for suite in $suites; do
		from_suite "$uri" "$suite" "/usr/share/keyrings/$id-archive-keyring.gpg" && return 0
	done
	return 1
}

new_enough "$(source_version "$dest")" && exit 0
trap clean_up EXIT
scratch=$(mktemp -d)
chmod 755 "$scratch" # apt downloads as a user of its own
system_will_do && exit 0
from_release && exit 0
from_archive && exit 0
sed 's/^/  /' "$scratch/apt.log" >&2 2>/dev/null || true
die "libfuse >= $minimum is needed and neither its release nor a newer suite of this machine's archive could be had:" \
	"put its source into $dest or install it built with -Denable-custom-io=true"
