# Prints what the guest contract asks about, a section each: "@@ NAME" and then the output of one command, which may lack its
# last newline. Where something is not ready yet it says "@@ waiting" and stops: a guest that comes up has better things to do than to
# start programs that cannot answer. For the same reason the API is asked with curl, which an emulated guest starts ten times faster than kubectl.
# Run as root inside the guest; leaves nothing behind. $1 is "deep" for the questions that take many seconds.
set -u
umask 077
export KUBECONFIG=/etc/rancher/k3s/k3s.yaml LC_ALL=C.UTF-8
scratch=$(mktemp -d /tmp/labctl-contract.XXXXXX) || exit 3
bare=${LABCTL_GIT_ROOT:-/srv/bare}/labctl-contract-$$.git # the variable is for tests
trap 'rm -rf "$scratch" "$bare"' EXIT HUP INT TERM
section() {
  name=$1; shift
  printf '@@ %s\n' "$name"
  "$@" >"$scratch/$name.out" 2>"$scratch/$name.err"; code=$?
  cat "$scratch/$name.out"
  [ "$code" -eq 0 ] || printf '\n@! %s %s\n' "$code" "$(tr '\n' ' ' <"$scratch/$name.err" | cut -c1-500)"
  echo
}
# A section beside the others, which `besides` prints: programs that take long to start would leave a processor idle one after the other.
beside() { begun="${begun:-} $1"; section "$@" >"$scratch/$1" & }
besides() { wait; for name in ${begun:-}; do cat "$scratch/$name"; done; }
waiting() { echo "@@ waiting"; exit 0; }
field() { sed -n "s/^ *$1: //p" "$KUBECONFIG" 2>/dev/null | head -n 1; }
api() { curl -sSf --max-time 60 --cacert "$scratch/ca" --cert "$scratch/cert" --key "$scratch/key" "$server$1"; }
both() { { api "/apis/apps/v1/deployments" && api "/apis/apps/v1/statefulsets"; } | jq -cs '{items: map(.items) | add}'; }
object() { api "$1" | jq -r "$2"; }
visible() { (umask 022 && git init -q --bare "$bare") && timeout 20 git ls-remote "git://gitd.gitsrv.svc.cluster.local:9418/$(basename "$bare")" && echo visible; }
section user id -u
section commands sh -c 'for c in git kubectl argocd k3s; do command -v "$c" || { echo "no $c" >&2; exit 1; }; done'
section login bash -lc 'echo "$KUBECONFIG"'
section kubeconfig stat -c '%a %U' /etc/rancher/k3s/k3s.yaml
section gitconfig sh -c 'cd / && git config user.name && git config user.email && git config init.defaultBranch'
section clock date +%s
for part in ca:certificate-authority-data cert:client-certificate-data key:client-key-data; do
  field "${part#*:}" | base64 -d >"$scratch/${part%%:*}" 2>/dev/null
done
server=$(field server)
section ready api /readyz
[ "$(cat "$scratch/ready.out")" = ok ] || waiting
section nodes api /api/v1/nodes
section workloads both
jq -e '[.items[] | select((.metadata.namespace | IN("argocd", "gitsrv", "kube-system")) and (.status.readyReplicas // 0) < .spec.replicas)] == []' "$scratch/workloads.out" >/dev/null || waiting
beside kubectl kubectl get --raw /readyz
beside images k3s crictl images -o json
beside gitd visible
# Argo CD reads it first thing and gives up after 32 s; the server makes it at the first request, which takes longer under emulation.
api /openapi/v2 >"$scratch/description" 2>/dev/null
section openapi stat -c %s "$scratch/description"
section service object /api/v1/namespaces/gitsrv/services/gitd '.spec.ports[0].port'
section project object /apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects/default .metadata.name
besides
[ "${1:-}" = deep ] || exit 0
section k3skubectl k3s kubectl version --client
section argocli sh -c 'cp /etc/rancher/k3s/k3s.yaml "$1/kubeconfig" && kubectl config --kubeconfig "$1/kubeconfig" set-context --current --namespace=argocd >/dev/null && KUBECONFIG="$1/kubeconfig" timeout 120 argocd app list --core -o name && echo answered' sh "$scratch"
