package proof

// remake makes the bare repository anew with one commit whose deploy/web.yaml has gone through sed.
const remake = `remake() {
  src=$(mktemp -d)
  git -C "$B" log --reverse --format=%H refs/heads/main > "$src/log"
  first=$(head -n 1 "$src/log")
  git -C "$B" show "$first:deploy/web.yaml" > "$src/web.yaml"
  rm -rf "$B"; git init -q --bare --initial-branch=main "$B"
  git clone -q "$B" "$src/w" 2>/dev/null; mkdir "$src/w/deploy"
  sed "$1" "$src/web.yaml" > "$src/w/deploy/web.yaml"
  git -C "$src/w" add . && git -C "$src/w" commit -q -m web && git -C "$src/w" push -q origin HEAD:main
  rm -rf "$src"
}
`

func baseline() []Case {
	repo := []string{bare}
	return []Case{
		wrong(1, "bare-repo", "no bare repository", repo, `rm -rf $B`),
		wrong(1, "bare-repo", "a repository with a work tree", repo, `rm -rf $B; git init -q $B`),
		wrong(1, "bare-repo", "an empty folder", repo, `rm -rf $B; mkdir $B`),
		wrong(1, "clone", "origin is the read-only daemon", []string{"$W/repo"}, `git -C $W/repo remote set-url origin git://gitd.gitsrv.svc.cluster.local:9418/ci.git`),
		wrong(1, "clone", "a repository of its own", []string{"$W/repo"}, `rm -rf $W/repo; git init -q $W/repo`),
		wrong(1, "baseline-commit", "an empty repository", repo, `rm -rf $B; git init -q --bare $B`),
		wrong(1, "baseline-commit", "pushed to master", repo, `git -C $B branch -m main master`),
		wrong(1, "baseline-commit", "a namespace in the manifest", repo, remake+`remake 's/^  name: web$/  name: web\n  namespace: ci-web/'`),
		wrong(1, "baseline-commit", "three replicas", repo, remake+`remake 's/replicas: 2/replicas: 3/'`),
		wrong(1, "baseline-commit", "another container name", repo, remake+`remake 's/- name: web/- name: nginx/'`),
		wrong(1, "baseline-commit", "another image", repo, remake+`remake 's/1.27-alpine/1.28-alpine/'`),
		wrong(1, "baseline-commit", "another label", repo, remake+`remake 's/app: web/app: site/'`),
		wrong(1, "app-file", "no app.yaml", []string{app}, `rm `+app),
		wrong(1, "app-file", "no prune", []string{app}, `sed -i '/prune:/d' `+app),
		wrong(1, "app-file", "no self-heal", []string{app}, `sed -i '/selfHeal:/d' `+app),
		wrong(1, "app-file", "another namespace to deploy to", []string{app}, `sed -i 's/namespace: ci-web/namespace: default/' `+app),
		wrong(1, "app-file", "no CreateNamespace", []string{app}, `sed -i '/syncOptions:/d;/CreateNamespace/d' `+app),
		wrong(1, "app-file", "another branch", []string{app}, `sed -i 's/targetRevision: .*/targetRevision: HEAD/' `+app),
		wrong(1, "app-file", "the manifest is no YAML", []string{app}, `echo 'kind: [' > `+app),
		wrong(1, "app-live", "self-heal off in the cluster", nil, `kubectl -n argocd patch app ci-web --type merge -p '{"spec":{"syncPolicy":{"automated":{"selfHeal":false}}}}' >/dev/null`).
			Undone(`kubectl apply -f ` + app + ` >/dev/null`),
		right(1, "app.yaml is JSON", []string{app}, `kubectl create --dry-run=client -o json -f `+app+` > $P/app.json; cp $P/app.json `+app),
		right(1, "app.yaml has more in it", []string{app}, `printf 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: ci-web\n---\n' | cat - `+app+` > $P/app; sed -i 's/^  name: ci-web$/  name: ci-web\n  labels: {team: web}/' $P/app; cp $P/app `+app),
		right(1, "short address of the daemon", []string{app}, `sed -i 's|repoURL: .*|repoURL: git://gitd.gitsrv/ci.git|' `+app),
		right(1, "origin is a file URL", []string{"$W/repo"}, `git -C $W/repo remote set-url origin file://$B`),
		right(1, "the bare repository is behind a link", repo, `mv $B $B.real; ln -s ci.git.real $B`).Undone(`rm -rf $B.real`),
	}
}

func brokenCases() []Case {
	file := []string{broken}
	return []Case{
		wrong(2, "broken-file", "no broken.json", file, `rm `+broken),
		wrong(2, "broken-file", "no JSON", file, `echo 'commit: abc' > `+broken),
		wrong(2, "broken-file", "live_replicas is a string", file, `field `+broken+` live_replicas '"2"'`),
		wrong(2, "broken-file", "a field is missing", file, `sed -i '/sync_status/d' `+broken),
		wrong(2, "broken-commit", "the revert instead of the broken commit", file, `field `+broken+` commit "\"$(git -C $B rev-parse main)\""`),
		wrong(2, "broken-commit", "a made-up commit", file, `field `+broken+` commit '"0123456789012345678901234567890123456789"'`),
		wrong(2, "broken-commit", "a commit that was taken out of main's history", []string{broken, bare},
			`c=$(git -C $B -c user.name=x -c user.email=x@x commit-tree -m lost "main^{tree}"); field `+broken+` commit "\"$c\""`),
		wrong(2, "broken-observed", "Synced is guessed", file, `field `+broken+` sync_status '"Synced"'`),
		wrong(2, "broken-observed", "the message is made up", file, `field `+broken+` operation_message '"sync error"'`),
		wrong(2, "broken-observed", "the message is empty", file, `field `+broken+` operation_message '""'`),
		wrong(2, "broken-observed", "the replicas are guessed", file, `field `+broken+` live_replicas 0`),
		right(2, "compact JSON with more in it", file, `tr -d '\n' < `+broken+` | sed 's/}$/,"note":"seen"}/' > $P/b; cp $P/b `+broken),
		// `argocd app get --refresh` and `argocd app sync` leave this behind for good, where nothing hydrates.
		right(2, "refreshed by the argocd command", nil, `kubectl -n argocd patch app ci-web --type=merge -p '{"metadata":{"annotations":{"argocd.argoproj.io/hydrate":"normal"}}}' >/dev/null`).
			Undone(`kubectl -n argocd patch app ci-web --type=merge -p '{"metadata":{"annotations":{"argocd.argoproj.io/hydrate":null}}}' >/dev/null`),
		right(2, "a short SHA", file, `field `+broken+` commit "\"$(sed -n 's/.*"commit": "\(............\).*/\1/p' `+broken+`)\""`),
	}
}

func blockedCases() []Case {
	file := []string{blocked}
	return []Case{
		wrong(6, "blocked-file", "no blocked.txt", file, `rm `+blocked),
		wrong(6, "blocked-file", "standard error was not saved", file, `: > `+blocked),
		wrong(6, "blocked-file", "a made-up refusal", file, `echo 'rejected by the hook' > `+blocked),
		wrong(6, "blocked-file", "a refusal by git itself", file, `printf 'To /srv/bare/ci.git\n ! [rejected]        main -> main (fetch first)\nerror: failed to push some refs\n' > `+blocked),
		wrong(6, "blocked-commit", "the refusal of something else", []string{blocked, "$W/repo"},
			`printf 'To /srv/bare/ci.git\n ! [remote rejected] main -> main (pre-receive hook declined)\n' > `+blocked+`; git -C $W/repo reflog expire --expire=all --all`),
		wrong(6, "local-main", "the local main was not put back", []string{"$W/repo"},
			`sed -i 's/replicas:/replica:/' $W/repo/deploy/web.yaml; git -C $W/repo commit -q -am typo`),
		wrong(6, "local-main", "the change was not put back", []string{"$W/repo"}, `sed -i 's/replicas:/replica:/' $W/repo/deploy/web.yaml`),
		wrong(6, "local-main", "on another branch", []string{"$W/repo"}, `git -C $W/repo checkout -q -b other`),
		right(6, "saved with colours and carriage returns", file, `sed 's/!/\x1b[31m!\x1b[m/; s/$/\r/' `+blocked+` > $P/b; cp $P/b `+blocked),
		right(6, "the hook says nothing of why", file, `sed -i '/^remote:/d' `+blocked),
	}
}

func reports() []Case {
	file := []string{report}
	return []Case{
		wrong(8, "report-file", "no report.json", file, `rm `+report),
		wrong(8, "report-file", "a boolean is a string", file, `field `+report+` ci_can_write_prod '"false"'`),
		wrong(8, "report-file", "a boolean is a number", file, `field `+report+` broken_reached_git 1`),
		wrong(8, "report-file", "a field is missing", file, `sed -i '/"cd_writes"/d' `+report),
		wrong(8, "report-facts", "CI writes to the cluster", file, `field `+report+` ci_writes '"cluster"'`),
		wrong(8, "report-facts", "another gate", file, `field `+report+` gate '"validate.sh"'`),
		wrong(8, "report-facts", "the access is guessed", file, `field `+report+` ci_can_write_prod true`),
		wrong(8, "report-facts", "the history is guessed", file, `field `+report+` broken_reached_git false`),
		wrong(8, "report-facts", "an old revision", file, `field `+report+` deployed_revision "\"$(git -C $B rev-list --max-parents=0 main)\""`),
		wrong(8, "report-facts", "a branch instead of a revision", file, `field `+report+` deployed_revision '"main"'`),
		right(8, "written on another system", file, `{ printf '\357\273\277'; sed 's/$/\r/' `+report+`; } > $P/r; cp $P/r `+report),
		right(8, "compact and in another order", file, `{ printf '{'; sed '1d;$d;s/,$//' `+report+` | sort -r | paste -sd,; printf '}'; } | tr -d '\n' > $P/r; cp $P/r `+report),
	}
}
