export KUBECONFIG=/etc/rancher/k3s/k3s.yaml
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LANG=C.UTF-8
if [ -n "${BASH_VERSION:-}" ] && [ -t 1 ]; then
  alias k=kubectl
  [ -r /usr/share/bash-completion/bash_completion ] && . /usr/share/bash-completion/bash_completion
fi
