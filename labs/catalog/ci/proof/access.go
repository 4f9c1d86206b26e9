package proof

func identity() []Case {
	file := []string{ciConfig}
	rbac := func(step string) string { return step + " >/dev/null" }
	const role = `kubectl apply -f - >/dev/null <<'END'
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: dryrun-deployments, namespace: ci-dryrun}
rules:
`
	// goodRole and goodBinding put the cluster's side back.
	const goodRole = role + `- {apiGroups: [apps], resources: [deployments], verbs: [get, create, patch]}
END`
	const goodBinding = `kubectl -n ci-dryrun delete rolebinding validator-dryrun --ignore-not-found >/dev/null
kubectl -n ci-dryrun create rolebinding validator-dryrun --role=dryrun-deployments --serviceaccount=ci:validator >/dev/null`
	const rebind = `kubectl -n ci-dryrun delete rolebinding validator-dryrun >/dev/null
kubectl -n ci-dryrun create rolebinding validator-dryrun `
	const config = `kubectl config --kubeconfig ` + ciConfig + ` `
	const user = `$(` + config + `view -o jsonpath='{.contexts[0].context.user}')`
	const cluster = `$(` + config + `view -o jsonpath='{.contexts[0].context.cluster}')`
	// token is a command that prints one.
	setToken := func(token string) string {
		return `t=$(` + token + `); ` + config + `set-credentials "` + user + `" --token="$t" >/dev/null`
	}
	const secret = `kubectl apply -f - >/dev/null <<'END'
apiVersion: v1
kind: Secret
metadata: {name: validator-token, namespace: ci, annotations: {kubernetes.io/service-account.name: validator}}
type: kubernetes.io/service-account-token
END
for i in $(seq 60); do t=$(kubectl -n ci get secret validator-token -o jsonpath='{.data.token}') && [ -n "$t" ] && break; sleep 1; done
[ -n "$t" ]
`
	return []Case{
		wrong(3, "ci-role", "all verbs", nil, role+"- {apiGroups: [apps], resources: [deployments], verbs: ['*']}\nEND").Undone(goodRole),
		wrong(3, "ci-role", "list as well", nil, role+"- {apiGroups: [apps], resources: [deployments], verbs: [get, list, create, patch]}\nEND").Undone(goodRole),
		wrong(3, "ci-role", "patch is missing", nil, role+"- {apiGroups: [apps], resources: [deployments], verbs: [get, create]}\nEND").Undone(goodRole),
		wrong(3, "ci-role", "the wrong API group", nil, role+"- {apiGroups: [''], resources: [deployments], verbs: [get, create, patch]}\nEND").Undone(goodRole),
		wrong(3, "ci-role", "pods as well", nil, role+"- {apiGroups: [apps], resources: [deployments], verbs: [get, create, patch]}\n- {apiGroups: [''], resources: [pods], verbs: [get]}\nEND").Undone(goodRole),
		wrong(3, "ci-binding", "another account", nil, rbac(rebind+`--role=dryrun-deployments --serviceaccount=ci-dryrun:validator`)).Undone(goodBinding),
		wrong(3, "ci-binding", "a ClusterRole", nil, rbac(rebind+`--clusterrole=edit --serviceaccount=ci:validator`)).Undone(goodBinding),
		wrong(3, "ci-binding", "all accounts of the namespace", nil, rbac(rebind+`--role=dryrun-deployments --group=system:serviceaccounts:ci`)).Undone(goodBinding),
		wrong(3, "ci-access", "cluster-admin by another binding", nil, rbac(`kubectl create clusterrolebinding proof-admin --clusterrole=cluster-admin --serviceaccount=ci:validator`)).
			Undone(`kubectl delete clusterrolebinding proof-admin --ignore-not-found >/dev/null`),
		wrong(3, "ci-access", "edit in ci-web by the account's group", nil, rbac(`kubectl -n ci-web create rolebinding proof-edit --clusterrole=edit --group=system:serviceaccounts:ci`)).
			Undone(`kubectl -n ci-web delete rolebinding proof-edit --ignore-not-found >/dev/null`),
		wrong(3, "ci-access", "view everywhere", nil, rbac(`kubectl create clusterrolebinding proof-view --clusterrole=view --serviceaccount=ci:validator`)).
			Undone(`kubectl delete clusterrolebinding proof-view --ignore-not-found >/dev/null`),
		wrong(3, "ci-kubeconfig", "no ci-kubeconfig", file, `rm `+ciConfig),
		wrong(3, "ci-kubeconfig", "a copy of the administrator's", file, `cp $KUBECONFIG `+ciConfig+`; `+rbac(config+`set-context --current --namespace=ci-dryrun`)),
		wrong(3, "ci-kubeconfig", "no namespace", file, rbac(config+`set-context --current --namespace=`)),
		wrong(3, "ci-kubeconfig", "another address", file, rbac(config+`set-cluster "`+cluster+`" --server=https://kubernetes.default.svc`)),
		wrong(3, "ci-kubeconfig", "the certificate is not verified", file, rbac(config+`unset clusters."`+cluster+`".certificate-authority-data`)+"\n"+rbac(config+`set-cluster "`+cluster+`" --insecure-skip-tls-verify=true`)),
		wrong(3, "ci-token", "valid for an hour", file, setToken(`kubectl -n ci create token validator`)),
		wrong(3, "ci-token", "valid for a day", file, setToken(`kubectl -n ci create token validator --duration=24h`)),
		wrong(3, "ci-token", "another account's token", file, setToken(`kubectl -n ci create token default --duration=8h`)),
		wrong(3, "ci-token", "a token that nobody gave out", file, setToken(`echo abc`)),
		right(3, "a token in a Secret", file, secret+setToken(`echo "$t" | base64 -d`)).Undone(`kubectl -n ci delete secret validator-token --ignore-not-found >/dev/null`),
		right(3, "three rules instead of one", nil, role+`- {apiGroups: [apps], resources: [deployments], verbs: [get]}
- {apiGroups: [apps], resources: [deployments], verbs: [create, get]}
- {apiGroups: [apps], resources: [deployments], verbs: [patch]}
END`).Undone(goodRole),
		right(3, "the account as a user", nil, rbac(rebind+`--role=dryrun-deployments --user=system:serviceaccount:ci:validator`)).Undone(goodBinding),
		right(3, "a token in minutes", file, setToken(`kubectl -n ci create token validator --duration=480m`)),
	}
}
