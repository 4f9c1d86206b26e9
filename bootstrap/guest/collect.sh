# Prints what the guest contract asks about, a section each: "@@ NAME" and then the output of one command, which may lack its
# last newline.
# Run as root inside the guest; leaves nothing behind. $1 is "deep" for the questions that take many seconds.
set -u
export KUBECONFIG=/etc/rancher/k3s/k3s.yaml LC_ALL=C.UTF-8
scratch=$(mktemp -d /tmp/labctl-contract.XXXXXX) || exit 3
bare=${LABCTL_GIT_ROOT:-/srv/bare}/labctl-contract-$$.git # the variable is for tests
trap 'rm -rf "$scratch" "$bare"' EXIT HUP INT TERM
section() { printf '@@ %s\n' "$1"; shift; "$@" 2>"$scratch/err" || { printf '\n@! %s %s\n' "$?" "$(tr '\n' ' ' <"$scratch/err" | cut -c1-500)"; }; echo; }
section user id -u
section commands sh -c 'for c in git kubectl argocd k3s; do command -v "$c" || { echo "no $c" >&2; exit 1; }; done'
section login bash -lc 'echo "$KUBECONFIG"'
section kubeconfig stat -c '%a %U' /etc/rancher/k3s/k3s.yaml
section gitconfig sh -c 'cd / && git config user.name && git config user.email && git config init.defaultBranch'
section clock date +%s
section ready kubectl get --raw /readyz
# Argo CD reads it first thing and gives up after 32 s; the server makes it at the first request, which takes longer under emulation.
section openapi sh -c 'kubectl get --raw /openapi/v2 | wc -c'
section nodes kubectl get nodes -o json
section workloads kubectl get deployments,statefulsets -A -o json
section service kubectl -n gitsrv get service gitd -o 'jsonpath={.spec.ports[0].port}'
section project kubectl -n argocd get appprojects.argoproj.io default -o name
section images sh -c 'k3s crictl images -o json'
section gitd sh -c 'git init -q --bare "$1" && timeout 20 git ls-remote "git://gitd.gitsrv.svc.cluster.local:9418/$(basename "$1")" && echo visible' sh "$bare"
[ "${1:-}" = deep ] || exit 0
section k3skubectl k3s kubectl version --client
section argocli sh -c 'cp /etc/rancher/k3s/k3s.yaml "$1/kubeconfig" && kubectl config --kubeconfig "$1/kubeconfig" set-context --current --namespace=argocd >/dev/null && KUBECONFIG="$1/kubeconfig" timeout 120 argocd app list --core -o name && echo answered' sh "$scratch"
