#!/bin/sh
# Try a directory's manifests against the API server as CI's own account. A server-side dry run goes through schema, field
# validation and admission, and keeps nothing. kubectl goes on after a refused file and ends with a code other than 0.
set -eu
dir=${1:?usage: validate.sh DIRECTORY}
exec kubectl --kubeconfig @WORK@/ci-kubeconfig --namespace ci-dryrun apply --dry-run=server -f "$dir"
