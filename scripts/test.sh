#!/usr/bin/env bash
# Installs what the tests need, builds, runs them all, and ends with the line `N passed, N failed, N skipped`.
#
#   scripts/test.sh [--long]        --long: the torture rounds in full
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

pytest_args=()
case ${1:-} in
'') ;;
-h | --help)
	sed -n '2,4s/^# \{0,1\}//p' scripts/test.sh
	exit 0
	;;
--long) pytest_args+=(--long) ;;
*)
	echo "test.sh: '$1' is unknown; only --long is taken" >&2
	exit 2
	;;
esac

scripts/check_machine.sh
scripts/setup.sh build test
scripts/build.sh >/dev/null

unit=build/release/meson-logs/testlog.junit.xml
integration=build/integration.junit.xml
rm -f "$unit" "$integration"

unit_status=0
meson test -C build/release --no-rebuild --print-errorlogs </dev/null || unit_status=$?
integration_status=0
build/venv/bin/python -m pytest tests "${pytest_args[@]}" --junitxml="$integration" </dev/null || integration_status=$?

# A run that ended badly without a failed test in its report counts as one.
/usr/bin/python3 - "$unit" "$unit_status" "$integration" "$integration_status" <<'E2'
import sys
import xml.etree.ElementTree as ElementTree

passed = failed = skipped = 0
for path, status in zip(sys.argv[1::2], sys.argv[2::2]):
    bad = 0
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        cases = []
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            bad += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    if bad == 0 and (status != "0" or not cases):
        bad = 1
        print(f"{path}: the run ended with status {status} and reports {len(cases)} tests")
    failed += bad
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed or not passed else 0)
E2
