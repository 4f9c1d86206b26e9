package proof

func validate() []Case {
	file := []string{validator}
	kubectl := `kubectl --kubeconfig /root/cgoa-ci/ci-kubeconfig -n ci-dryrun`
	sh := func(body string) string { return "script " + validator + " <<'END'\n" + body + "\nEND" }
	return []Case{
		wrong(4, "validate-file", "no validate.sh", file, `rm `+validator),
		wrong(4, "validate-file", "not executable", file, `chmod 644 `+validator),
		wrong(4, "validate-login", "it relies on KUBECONFIG", file, sh(`#!/bin/sh
exec kubectl -n ci-dryrun apply --dry-run=server -f "$1"`)),
		wrong(4, "validate-login", "it takes the administrator's kubeconfig", file, sh(`#!/bin/sh
exec kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml -n ci-dryrun apply --dry-run=server -f "$1"`)),
		wrong(4, "validate-login", "it only looks at the text", file, sh(`#!/bin/sh
! grep -rqE 'replicas: *[a-z]|replica:' "$1"`)),
		wrong(4, "validate-harmless", "it applies for real", file, sh(`#!/bin/sh
exec `+kubectl+` apply -f "$1"`)),
		wrong(4, "validate-harmless", "it tries another namespace", file, sh(`#!/bin/sh
exec kubectl --kubeconfig /root/cgoa-ci/ci-kubeconfig -n ci-web apply --dry-run=server -f "$1"`)),
		wrong(4, "validate-accepts", "blanks in the path", file, sh(`#!/bin/sh
exec `+kubectl+` apply --dry-run=server -f $1`)),
		wrong(4, "validate-accepts", "relative paths", file, sh(`#!/bin/sh
cd / && exec `+kubectl+` apply --dry-run=server -f "$1"`)),
		wrong(4, "validate-rejects", "a client-side dry run", file, sh(`#!/bin/sh
exec `+kubectl+` apply --dry-run=client -f "$1"`)),
		wrong(4, "validate-rejects", "set -e with a pipe", file, sh(`#!/bin/sh
set -e
`+kubectl+` apply --dry-run=server -f "$1" 2>&1 | sed 's/^/validate: /'`)),
		wrong(4, "validate-rejects", "the last file wins", file, sh(`#!/bin/sh
for f in "$1"/*; do `+kubectl+` apply --dry-run=server -f "$f"; done`)),
		wrong(4, "validate-rejects", "a loop behind a pipe", file, sh(`#!/bin/sh
bad=0
ls "$1" | while read -r f; do `+kubectl+` apply --dry-run=server -f "$1/$f" || bad=1; done
exit $bad`)),
		wrong(4, "validate-rejects", "field validation is off", file, sh(`#!/bin/sh
exec `+kubectl+` apply --validate=false --dry-run=server -f "$1"`)),
		right(4, "a loop that remembers", file, sh(`#!/bin/sh
bad=0
for f in "$1"/*; do `+kubectl+` apply --dry-run=server -f "$f" </dev/null || bad=1; done
exit $bad`)),
		right(4, "KUBECONFIG is set in the script", file, sh(`#!/bin/bash
set -euo pipefail
export KUBECONFIG=/root/cgoa-ci/ci-kubeconfig
cat "$1"/*.yaml | sed -e '/^apiVersion:/i ---' | kubectl apply --dry-run=server -f - | tee /dev/null`)),
		right(4, "server-side apply", file, sh(`#!/bin/sh
exec `+kubectl+` apply --server-side --dry-run=server -f "$1"`)),
		right(4, "no first line", file, sh(kubectl+` create --dry-run=server -f "$1"`)),
	}
}

func hooks() []Case {
	file := []string{hook}
	sh := func(body string) string { return "script " + hook + " <<'END'\n" + body + "\nEND" }
	const takeOut = `t=$(mktemp -d); git archive "$new" deploy | tar -x -C "$t"`
	return []Case{
		wrong(5, "hook-file", "no hook", file, `rm `+hook),
		wrong(5, "hook-file", "not executable", file, `chmod 644 `+hook),
		wrong(5, "hook-file", "another hook's name", file, `mv `+hook+` $B/hooks/update`).Undone(`rm -f $B/hooks/update`),
		wrong(5, "hook-accepts", "it refuses everything", file, sh(`#!/bin/sh
echo no; exit 1`)),
		wrong(5, "hook-accepts", "the folder is not taken out right", file, sh(`#!/bin/sh
while read -r old new ref; do
  [ "$ref" = refs/heads/main ] || continue
  `+takeOut+` && /root/cgoa-ci/validate.sh "$t" || exit 1
done`)),
		wrong(5, "hook-rejects", "its answer is not validate.sh's", file, sh(`#!/bin/sh
while read -r old new ref; do
  [ "$ref" = refs/heads/main ] || continue
  [ "$new" != 0000000000000000000000000000000000000000 ] || exit 1
  `+takeOut+`; /root/cgoa-ci/validate.sh "$t/deploy"; rm -rf "$t"
done
exit 0`)),
		wrong(5, "hook-rejects", "it validates the old commit", file, sh(`#!/bin/sh
while read -r old new ref; do
  [ "$ref" = refs/heads/main ] || continue
  [ "$new" != 0000000000000000000000000000000000000000 ] || exit 1
  t=$(mktemp -d); git archive "$old" deploy | tar -x -C "$t"; /root/cgoa-ci/validate.sh "$t/deploy" || exit 1
done`)),
		wrong(5, "hook-rejects", "it validates the clone", file, sh(`#!/bin/sh
while read -r old new ref; do
  [ "$ref" = refs/heads/main ] || continue
  [ "$new" != 0000000000000000000000000000000000000000 ] || exit 1
  /root/cgoa-ci/validate.sh /root/cgoa-ci/repo/deploy || exit 1
done`)),
		wrong(5, "hook-rejects", "it reads one line only", file, sh(`#!/bin/sh
read -r old new ref
[ "$ref" = refs/heads/main ] || exit 0
[ "$new" != 0000000000000000000000000000000000000000 ] || exit 1
`+takeOut+`; exec /root/cgoa-ci/validate.sh "$t/deploy"`)),
		wrong(5, "hook-rejects", "the last ref wins", file, sh(`#!/bin/sh
while read -r old new ref; do
  s=0
  [ "$ref" = refs/heads/main ] || continue
  [ "$new" != 0000000000000000000000000000000000000000 ] || exit 1
  `+takeOut+`; /root/cgoa-ci/validate.sh "$t/deploy"; s=$?
done
exit $s`)),
		wrong(5, "hook-others", "it validates every ref", file, sh(`#!/bin/sh
while read -r old new ref; do
  [ "$new" != 0000000000000000000000000000000000000000 ] || exit 1
  `+takeOut+`; /root/cgoa-ci/validate.sh "$t/deploy" || exit 1
done`)),
		wrong(5, "hook-others", "it refuses every deletion", file, sh(`#!/bin/sh
while read -r old new ref; do
  [ "$new" != 0000000000000000000000000000000000000000 ] || exit 1
  [ "$ref" = refs/heads/main ] || continue
  `+takeOut+`; /root/cgoa-ci/validate.sh "$t/deploy" || exit 1
done`)),
		wrong(5, "hook-delete", "it lets main be deleted", file, sh(`#!/bin/sh
while read -r old new ref; do
  [ "$ref" = refs/heads/main ] || continue
  [ "$new" != 0000000000000000000000000000000000000000 ] || continue
  `+takeOut+`; /root/cgoa-ci/validate.sh "$t/deploy" || exit 1
done`)),
		right(5, "bash, by way of an index", file, sh(`#!/bin/bash
set -euo pipefail
while read -r old new ref; do
  case $ref in refs/heads/main) ;; *) continue ;; esac
  if [[ $new =~ ^0+$ ]]; then echo "main stays" >&2; exit 1; fi
  dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
  GIT_INDEX_FILE=$dir/index git read-tree "$new"
  GIT_INDEX_FILE=$dir/index git --work-tree="$dir" checkout-index --all --prefix="$dir/out/"
  bash /root/cgoa-ci/validate.sh "$dir/out/deploy"
done < <(cat)`)),
		right(5, "every new commit is validated", file, sh(`#!/bin/sh
set -e
while read -r old new ref; do
  [ "$ref" = refs/heads/main ] || continue
  [ -n "$(echo "$new" | tr -d 0)" ] || exit 1
  for new in $(git rev-list "$old..$new"); do
    `+takeOut+`
    /root/cgoa-ci/validate.sh "$t/deploy"
  done
done`)),
		right(5, "the path of the repository is written out", file, sh(`#!/bin/sh
while read -r old new ref; do
  [ "$ref" = refs/heads/main ] || continue
  case $new in *[!0]*) ;; *) exit 1 ;; esac
  t=$(mktemp -d)
  git --git-dir=/srv/bare/ci.git archive "$new" deploy | tar -x -C "$t" && /root/cgoa-ci/validate.sh "$t/deploy" || exit 1
done`)),
		right(5, "the hook is a link", file, `mv `+hook+` $W/hook; ln -s $W/hook `+hook).Undone(`rm -f $W/hook`),
		right(5, "core.hooksPath", []string{hook, "$B/config"}, `mkdir -p $W/hooks; mv `+hook+` $W/hooks/; git -C $B config core.hooksPath $W/hooks`).Undone(`rm -rf $W/hooks`),
	}
}

func bumps() []Case {
	file := []string{bump}
	sh := func(body string) string { return "script " + bump + " <<'END'\n" + body + "\nEND" }
	const sync = `cd /root/cgoa-ci/repo && git fetch -q origin && git reset -q --hard origin/main`
	return []Case{
		wrong(7, "bump-file", "no bump.sh", file, `rm `+bump),
		wrong(7, "bump-file", "not executable", file, `chmod 644 `+bump),
		wrong(7, "bump-works", "it refreshes with kubectl", file, `printf 'kubectl -n argocd annotate app ci-web argocd.argoproj.io/refresh=hard --overwrite\n' >> `+bump),
		wrong(7, "bump-works", "it sets the image in the cluster", file, sh(`#!/bin/sh
kubectl -n ci-web set image deploy/web web=nginx:$1`)),
		wrong(7, "bump-works", "it does not push", file, sh(`#!/bin/sh
`+sync+` && sed -i "s|nginx:.*|nginx:$1|" deploy/web.yaml && git commit -qam "ci: web nginx:$1"`)),
		wrong(7, "bump-works", "it does not start from the remote main", file, sh(`#!/bin/sh
cd /root/cgoa-ci/repo && sed -i "s|nginx:.*|nginx:$1|" deploy/web.yaml && git commit -qam "ci: web nginx:$1" && git push -q origin main`)),
		wrong(7, "bump-works", "another message", file, sh(`#!/bin/sh
`+sync+` && sed -i "s|nginx:.*|nginx:$1|" deploy/web.yaml && git commit -qam "web nginx:$1" && git push -q origin main`)),
		wrong(7, "bump-works", "the tag is written in", file, sh(`#!/bin/sh
`+sync+` && sed -i "s|nginx:.*|nginx:1.29-alpine|" deploy/web.yaml && git commit -qam "ci: web nginx:$1" && git push -q origin main`)),
		wrong(7, "bump-works", "it changes more", file, sh(`#!/bin/sh
`+sync+` && sed -i "s|nginx:.*|nginx:$1|; s/replicas: 2/replicas: 3/" deploy/web.yaml && git commit -qam "ci: web nginx:$1" && git push -q origin main`)),
		wrong(7, "bump-works", "it pushes by force from an old main", file, sh(`#!/bin/sh
cd /root/cgoa-ci/repo && sed -i "s|nginx:.*|nginx:$1|" deploy/web.yaml && git commit -qam "ci: web nginx:$1" && git push -q --force origin main`)),
		right(7, "with pull", file, sh(`#!/bin/bash
set -euo pipefail
cd "$(dirname "$0")/repo"
git checkout -q main
git pull -q --ff-only origin main
sed -i -E "s#(image: )nginx:\S+#\1nginx:${1}#" deploy/web.yaml
git add -A
git commit -q -m "ci: web nginx:${1}" -m "by bump.sh"
git push -q`)),
		right(7, "no first line", file, sh(`cd /root/cgoa-ci/repo || exit 1
git fetch origin && git checkout -B main origin/main || exit 1
sed -i "s|nginx:.*|nginx:$1|" deploy/web.yaml
git commit -am "ci: web nginx:$1" && git push origin HEAD:main`)),
	}
}
