package proof

func applications() []Case {
	file := []string{apps}
	patch := func(app, spec string) string {
		return `kubectl -n argocd patch app ` + app + ` --type merge -p '{"spec":` + spec + `}' >/dev/null`
	}
	const apply = `kubectl apply -f ` + apps + ` >/dev/null`
	return []Case{
		wrong(2, "apps-file", "no apps.yaml", file, `rm `+apps),
		wrong(2, "apps-file", "two Applications only", file, `awk '/^---$/ { n++ } n < 2' `+apps+` > $P/a; cp $P/a `+apps),
		wrong(2, "apps-file", "the documents are not separated", file, `sed -i '/^---$/d' `+apps),
		wrong(2, "apps-file", "no YAML", file, `echo 'kind: [' > `+apps),
		wrong(2, "apps-file", "rev-sha tracks a short SHA", file, commits+`sed -i "s/targetRevision: $first/targetRevision: $(echo $first | cut -c1-12)/" `+apps),
		wrong(2, "apps-file", "rev-sha tracks the tag", file, commits+`sed -i "s/targetRevision: $first/targetRevision: v1/" `+apps),
		wrong(2, "apps-file", "rev-sha tracks another commit", file, commits+`sed -i "s/targetRevision: $first/targetRevision: $second/" `+apps),
		wrong(2, "apps-file", "rev-branch tracks HEAD", file, `sed -i 's/targetRevision: main/targetRevision: HEAD/' `+apps),
		wrong(2, "apps-file", "rev-tag tracks a range", file, `sed -i 's/targetRevision: v1/targetRevision: v1.*/' `+apps),
		wrong(2, "apps-file", "one namespace for all", file, `sed -i 's/^    namespace: rev-.*/    namespace: rev/' `+apps),
		wrong(2, "apps-file", "another path", file, `sed -i 's/path: app/path: ./' `+apps),
		wrong(2, "apps-file", "no prune", file, `sed -i '/prune:/d' `+apps),
		wrong(2, "apps-file", "self-heal is off", file, `sed -i 's/selfHeal: true/selfHeal: false/' `+apps),
		wrong(2, "apps-file", "no CreateNamespace", file, `sed -i '/syncOptions:/d; /CreateNamespace/d' `+apps),
		wrong(2, "apps-file", "the repository's path instead of its address", file, `sed -i 's|repoURL: .*|repoURL: /srv/bare/rev.git|' `+apps),
		wrong(2, "apps-live", "automated sync is off, so that a rollback may succeed", nil, patch("rev-branch", `{"syncPolicy":{"automated":null}}`)).Undone(apply),
		wrong(2, "apps-live", "automated sync is switched off", nil, patch("rev-branch", `{"syncPolicy":{"automated":{"enabled":false}}}`)).
			Undone(patch("rev-branch", `{"syncPolicy":{"automated":{"enabled":null}}}`)),
		wrong(2, "apps-live", "rev-sha follows main in the cluster", nil, patch("rev-sha", `{"source":{"targetRevision":"main"}}`)).Undone(apply),
		wrong(2, "apps-live", "rev-sha is not there", nil, `kubectl -n argocd delete app rev-sha >/dev/null`).Undone(apply),
		right(2, "JSON", file, `kubectl create --dry-run=client -o json -f `+apps+` > $P/apps.json; cp $P/apps.json `+apps),
		right(2, "a List", file, `{ printf 'apiVersion: v1\nkind: List\nitems:\n'; sed -e '/^---$/d' -e 's/^/  /' -e 's/^  apiVersion/- apiVersion/' `+apps+`; } > $P/a; cp $P/a `+apps),
		// `argocd app get --refresh` and `argocd app sync` leave this behind for good, where nothing hydrates.
		right(2, "refreshed by the argocd command", nil, `kubectl -n argocd patch app rev-branch --type=merge -p '{"metadata":{"annotations":{"argocd.argoproj.io/hydrate":"normal"}}}' >/dev/null`).
			Undone(`kubectl -n argocd patch app rev-branch --type=merge -p '{"metadata":{"annotations":{"argocd.argoproj.io/hydrate":null}}}' >/dev/null`),
		right(2, "more in it", file, `{ printf 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: rev-sha\n---\n'; sed 's/^  name: rev-.*/&\n  labels: {lab: rev}/' `+apps+`; } > $P/a; cp $P/a `+apps),
		right(2, "short address of the daemon", file, `sed -i 's|repoURL: .*|repoURL: git://gitd.gitsrv/rev|' `+apps),
		right(2, "refs written out", file, `sed -i 's|targetRevision: main|targetRevision: refs/heads/main|; s|targetRevision: v1|targetRevision: refs/tags/v1|' `+apps),
		right(2, "the cluster by its name", file, `sed -i 's|server: https://kubernetes.default.svc|name: in-cluster|' `+apps),
	}
}

func afters() []Case {
	file := []string{after}
	return []Case{
		wrong(3, "second-commit", "v2 was never pushed", []string{bare}, commits+`git init -q --bare --initial-branch=main $B.new
git -C $B push -q $B.new "$first:refs/heads/main" "$first:refs/tags/v1"; rm -rf $B; mv $B.new $B`),
		wrong(3, "after-file", "no after-commit.json", file, `rm `+after),
		wrong(3, "after-file", "no JSON", file, `echo 'branch: abc' > `+after),
		wrong(3, "after-file", "two objects", file, `cat `+after+` `+after+` > $P/a; cp $P/a `+after),
		wrong(3, "after-file", "a field is missing", file, `sed -i '/"tag"/d' `+after),
		wrong(3, "after-file", "the Applications' names are the fields", file, `sed -i 's/"\(branch\|tag\|sha\)"/"rev-\1"/' `+after),
		wrong(3, "after-file", "a value is a number", file, `field `+after+` sha 1`),
		wrong(3, "after-file", "a value is a list", file, commits+`field `+after+` tag "[\"$first\"]"`),
		wrong(3, "after-values", "names instead of revisions", file, `field `+after+` branch '"main"'`),
		wrong(3, "after-values", "a short SHA", file, commits+`field `+after+` branch "\"$(echo $second | cut -c1-7)\""`),
		wrong(3, "after-values", "read before Argo CD looked again", file, commits+`field `+after+` branch "\"$first\""`),
		wrong(3, "after-values", "read when v2 had been undone", file, `field `+after+` branch "\"$(git -C $B rev-parse refs/heads/main)\""`),
		wrong(3, "after-values", "the tag was moved along", file, commits+`field `+after+` tag "\"$second\""`),
		wrong(3, "after-values", "all three went on", file, commits+`field `+after+` sha "\"$second\""`),
		wrong(3, "after-values", "a made-up commit", file, `field `+after+` branch '"0123456789012345678901234567890123456789"'`),
		wrong(3, "after-values", "the clone's own commit", []string{after, clone}, `git -C `+clone+` commit -q --allow-empty -m local; field `+after+` branch "\"$(git -C `+clone+` rev-parse HEAD)\""`),
		right(3, "compact JSON with more in it", file, `tr -d '\n ' < `+after+` | sed 's/}$/,"note":"seen"}/' > $P/a; cp $P/a `+after),
		right(3, "another order", file, commits+`printf '{"sha": "%s",\n"tag": "%s", "branch": "%s"}' "$first" "$first" "$second" > `+after),
		right(3, "written on another system", file, dos(after)),
		right(3, "the tag is annotated, and its own SHA was written", []string{after, bare}, commits+`git -C $B tag -f -a -m v1 v1 "$first" >/dev/null; field `+after+` tag "\"$(git -C $B rev-parse refs/tags/v1)\""`),
	}
}

func histories() []Case {
	file := []string{tagHistory}
	// write writes tag-history.json: the target, and revisions.
	const write = commits + `write() {
  target=$1; shift; list=
  for r in "$@"; do list="$list${list:+, }\"$r\""; done
  printf '{"target": "%s", "revisions": [%s]}\n' "$target" "$list" > ` + tagHistory + `
}
`
	// remember gives rev-tag another history, an entry for each of ID REVISION TARGET.
	const saved = `/var/tmp/labctl-proof-history`
	const remember = commits + `remember() {
  [ -e ` + saved + ` ] || kubectl -n argocd get app rev-tag -o jsonpath='{.status.history}' > ` + saved + `
  list=
  while [ $# -gt 0 ]; do
    list="$list${list:+,}{\"id\":$1,\"revision\":\"$2\",\"deployedAt\":\"2026-01-01T00:00:00Z\",\"source\":{\"repoURL\":\"git://gitd.gitsrv.svc.cluster.local:9418/rev.git\",\"path\":\"app\",\"targetRevision\":\"$3\"}}"
    shift 3
  done
  kubectl -n argocd patch app rev-tag --type merge -p "{\"status\":{\"history\":[$list]}}" >/dev/null
}
`
	const remind = `if [ -e ` + saved + ` ]; then
  kubectl -n argocd patch app rev-tag --type merge -p "{\"status\":{\"history\":$(cat ` + saved + `)}}" >/dev/null
  rm ` + saved + `
fi`
	return []Case{
		wrong(4, "tag-moved", "the tag was moved only locally", []string{clone}, remember+`remember 0 "$first" v1; git -C `+clone+` tag -f v1 "$second" >/dev/null`).Undone(remind),
		wrong(4, "tag-moved", "the tag was not moved", nil, remember+`remember 0 "$first" v1`).Undone(remind),
		wrong(4, "tag-moved", "rev-tag followed main for a while", nil, remember+`remember 0 "$first" v1 1 "$second" main 2 "$first" v1`).Undone(remind),
		wrong(4, "tag-moved", "rev-tag was made when the tag had moved", nil, remember+`remember 0 "$second" v1 1 "$first" v1`).Undone(remind),
		wrong(4, "history-file", "no tag-history.json", file, `rm `+tagHistory),
		wrong(4, "history-file", "no JSON", file, `echo v1 > `+tagHistory),
		wrong(4, "history-file", "the target is missing", file, commits+`printf '{"revisions": ["%s", "%s"]}' "$first" "$second" > `+tagHistory),
		wrong(4, "history-file", "another target", file, write+`write main "$first" "$second"`),
		wrong(4, "history-file", "revisions is a string", file, commits+`printf '{"target": "v1", "revisions": "%s %s"}' "$first" "$second" > `+tagHistory),
		wrong(4, "history-file", "the whole entries", file, commits+`printf '{"target": "v1", "revisions": [{"revision": "%s"}, {"revision": "%s"}]}' "$first" "$second" > `+tagHistory),
		wrong(4, "history-values", "the first only", file, write+`write v1 "$first"`),
		wrong(4, "history-values", "the second only", file, write+`write v1 "$second"`),
		wrong(4, "history-values", "nothing", file, write+`write v1`),
		wrong(4, "history-values", "the newest comes first", file, write+`write v1 "$second" "$first"`),
		wrong(4, "history-values", "short SHAs", file, write+`write v1 "$(echo $first | cut -c1-8)" "$(echo $second | cut -c1-8)"`),
		wrong(4, "history-values", "rev-branch's history", file, write+`write v1 "$first" "$second" "$(git -C $B rev-parse refs/heads/main)"`),
		wrong(4, "history-values", "an entry that was not there", file, write+`write v1 "$first" "$second" "$second"`),
		wrong(4, "history-values", "made-up commits", file, write+`write v1 0123456789012345678901234567890123456789 9876543210987654321098765432109876543210`),
		right(4, "as it was when the tag had just moved", file, write+`write v1 "$first" "$second"`),
		right(4, "with the tag's way back", file, write+`write v1 "$first" "$second" "$first"`),
		right(4, "another order and more in it", file, commits+`printf '{"note": 1, "revisions":\n["%s",\n"%s"],"target":"v1"}' "$first" "$second" > `+tagHistory),
		right(4, "written on another system", file, dos(tagHistory)),
		right(4, "Argo CD has forgotten the move", nil, remember+`remember 12 "$first" v1`).Undone(remind),
		right(4, "Argo CD has forgotten the beginning", nil, remember+`remember 1 "$second" v1 2 "$first" v1`).Undone(remind),
	}
}

func refusals() []Case {
	file, config := []string{refused}, []string{kubeconfig}
	const set = `kubectl config --kubeconfig ` + kubeconfig + ` `
	return []Case{
		wrong(7, "core-kubeconfig", "no kubeconfig", config, `rm `+kubeconfig),
		wrong(7, "core-kubeconfig", "a plain copy", config, `cp $KUBECONFIG `+kubeconfig),
		wrong(7, "core-kubeconfig", "another namespace", config, set+`set-context --current --namespace=rev-branch >/dev/null`),
		wrong(7, "core-kubeconfig", "no kubeconfig but its path", config, `echo $KUBECONFIG > `+kubeconfig),
		wrong(7, "core-kubeconfig", "another server", config, `sed -i 's|server: .*|server: https://kubernetes.default.svc|' `+kubeconfig),
		wrong(7, "refused-file", "no rollback-refused.txt", file, `rm `+refused),
		wrong(7, "refused-file", "standard error was not saved", file, `: > `+refused),
		wrong(7, "refused-file", "run in another namespace", file, `printf '{"level":"fatal","msg":"configmap \\"argocd-cm\\" not found","time":"2026-01-01T00:00:00Z"}\n' > `+refused),
		wrong(7, "refused-file", "the rollback succeeded", file, `printf 'TIMESTAMP GROUP KIND NAMESPACE NAME STATUS HEALTH HOOK MESSAGE\nName: argocd/rev-branch\nPhase: Succeeded\nSync Revision: abc\n' > `+refused),
		wrong(7, "refused-file", "there is no such deployment", file, `printf '{"level":"fatal","msg":"application rev-branch does not have deployment id 9 in history"}\n' > `+refused),
		wrong(7, "refused-file", "a made-up refusal", file, `echo 'rollback refused' > `+refused),
		wrong(7, "refused-file", "another Application's name is unknown", file, `printf '{"level":"fatal","msg":"rpc error: code = NotFound desc = applications.argoproj.io \\"rev\\" not found"}\n' > `+refused),
		right(7, "another log format", file, `printf 'WARN[0000] a warning\nFATA[0003] rpc error: code = FailedPrecondition desc = rollback cannot be initiated when auto-sync is enabled \n' > `+refused),
		right(7, "the prompt was saved as well", file, `printf '# argocd app rollback rev-branch 0 --core\r\n\033[31mFATA\033[0m[0003] rpc error: code = FailedPrecondition desc = rollback cannot be\r\ninitiated when auto-sync is enabled\r\n' > `+refused),
		right(7, "the kubeconfig is a link", config, `mv `+kubeconfig+` $W/core; ln -s core `+kubeconfig).Undone(`rm -f $W/core`),
	}
}

func reports() []Case {
	file := []string{report}
	// say writes report.json with other refs: a piece of JSON.
	const say = commits + `say() {
  printf '{"mutable_refs": %s, "immutable_ref": "commit-sha", "pinned_revision": "%s", "tag_guard": "pre-receive", "rollback": "git-revert"}\n' "$1" "$first" > ` + report + `
}
`
	return []Case{
		wrong(8, "report-file", "no report.json", file, `rm `+report),
		wrong(8, "report-file", "no JSON", file, `echo 'mutable_refs: [branch, tag]' > `+report),
		wrong(8, "report-file", "a field is missing", file, `sed -i '/"tag_guard"/d' `+report),
		wrong(8, "report-file", "the refs are one string", file, say+`say '"branch, tag"'`),
		wrong(8, "report-file", "the refs are an object", file, say+`say '{"branch": true, "tag": true}'`),
		wrong(8, "report-file", "the guard is a list", file, `field `+report+` tag_guard '["pre-receive"]'`),
		wrong(8, "report-facts", "only the branch", file, say+`say '["branch"]'`),
		wrong(8, "report-facts", "the SHA as well", file, say+`say '["branch", "tag", "commit-sha"]'`),
		wrong(8, "report-facts", "the refs' names", file, say+`say '["main", "v1"]'`),
		wrong(8, "report-facts", "the branch twice", file, say+`say '["branch", "branch"]'`),
		wrong(8, "report-facts", "the tag does not change", file, `field `+report+` immutable_ref '"tag"'`),
		wrong(8, "report-facts", "a short revision", file, commits+`field `+report+` pinned_revision "\"$(echo $first | cut -c1-12)\""`),
		wrong(8, "report-facts", "main's revision", file, `field `+report+` pinned_revision "\"$(git -C $B rev-parse refs/heads/main)\""`),
		wrong(8, "report-facts", "another hook", file, `field `+report+` tag_guard '"update"'`),
		wrong(8, "report-facts", "another way back", file, `field `+report+` rollback '"git-reset"'`),
		wrong(8, "report-facts", "Argo CD's rollback", file, `field `+report+` rollback '"argocd app rollback"'`),
		right(8, "the other order", file, say+`say '["tag", "branch"]'`),
		right(8, "written on another system", file, dos(report)),
		right(8, "more in it", file, say+`say '["branch","tag"]'; sed -i 's/}$/,"note":null}/' `+report),
	}
}
