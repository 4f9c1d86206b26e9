# Re-issues, step by step, what clones of one image share. Run as root inside the guest; each step may be run again. $1 is the step.
set -eu
umask 077
export KUBECONFIG=/etc/rancher/k3s/k3s.yaml LC_ALL=C.UTF-8
server=${LABCTL_K3S_SERVER:-/var/lib/rancher/k3s/server} # the variable is for tests
new=$server/isolate
mark=$server/isolated
subject() { printf '/CN=k3s-%s-ca@%s' "$1" "$(date +%s)"; }
case $1 in
halfway)
  if [ -e "$new/whole" ] && [ ! -e "$mark" ]; then echo halfway; fi
  ;;
keys)
  # Made once: an interrupted run goes on with the same ones.
  if [ -e "$mark" ]; then
    rm -rf "$new"
    echo done
    exit 0
  fi
  if [ ! -e "$new/whole" ]; then
    rm -rf "$new"
    mkdir -p "$new/tls"
    for ca in server client request-header; do
      openssl ecparam -name prime256v1 -genkey -noout -out "$new/tls/$ca-ca.key"
      openssl req -x509 -new -sha256 -days 3650 -subj "$(subject "$ca")" -addext keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign \
        -key "$new/tls/$ca-ca.key" -out "$new/tls/$ca-ca.crt"
    done
    openssl genrsa -traditional -out "$new/tls/service.key" 2048 2>/dev/null
    touch "$new/whole"
    sync "$new" "$new/tls" "$new"/tls/*
  fi
  if ! cmp -s "$new/tls/service.key" "$server/tls/service.key"; then k3s certificate rotate-ca --force --path="$new" >&2; fi
  systemctl restart k3s
  ;;
lagging)
  # The namespaces whose pods would still be given the old authority.
  kubectl get configmaps -A --field-selector metadata.name=kube-root-ca.crt -o json |
    jq -r --rawfile ca "$server/tls/server-ca.crt" '.items[] | select((.data["ca.crt"] | rtrimstr("\n")) != ($ca | rtrimstr("\n"))) | .metadata.namespace'
  ;;
pods)
  # The redis password, and what `argocd --core` made and makes again.
  kubectl -n argocd patch secret argocd-redis --type=merge -p "{\"stringData\":{\"auth\":\"$(openssl rand -hex 16)\"}}" >&2
  kubectl -n argocd patch secret argocd-secret --type=merge -p '{"data":{"admin.password":null,"admin.passwordMtime":null,"server.secretkey":null}}' >&2
  kubectl -n argocd delete secret argocd-initial-admin-secret --ignore-not-found >&2
  # What pods have been given is signed by keys that are gone.
  kubectl delete pods --all -A --grace-period=2 --timeout=8m >&2
  touch "$mark"
  rm -rf "$new"
  ;;
esac
