#!/usr/bin/env bash
# Every test, in stages, each announced with its time: form, units and whole-program runs, fleets with the real Pulumi, the golden image and real VMs.
set -euo pipefail
cd "$(dirname "$0")/.."
begin=$SECONDS
stage() {
  local name=$1 start=$SECONDS
  shift
  printf '\n== test: %s (%d s since the start)\n' "$name" $((SECONDS - begin))
  "$@"
  printf -- '-- %s: %d s\n' "$name" $((SECONDS - start))
}

form() {
  local unformatted
  unformatted=$(git ls-files '*.go' | xargs gofmt -l)
  if [ -n "$unformatted" ]; then
    printf 'not formatted, run gofmt -w on:\n%s\n' "$unformatted" >&2
    return 1
  fi
  go vet ./...
  go vet -tags vm ./test/... ./provision/...
}

stage "form" form
stage "units and whole-program runs" go test -count=1 ./...
stage "build" make --no-print-directory build
stage "fleets" go test -tags vm -count=1 -timeout 30m ./provision/stack
# One package, so that what it prints is seen while it runs.
stage "golden image and real VMs" go test -tags vm -count=1 -timeout 80m -v ./test/vm
printf '\nall stages passed in %d s\n' $((SECONDS - begin))
