package proof

// remake makes the bare repository anew with one commit, which has the file $1 with what comes in, and a tag on it.
const remake = `remake() {
  src=$(mktemp -d)
  rm -rf "$B"; git init -q --bare --initial-branch=main "$B"
  git clone -q "$B" "$src/w" 2>/dev/null
  mkdir -p "$(dirname "$src/w/$1")"; cat > "$src/w/$1"
  git -C "$src/w" add . && git -C "$src/w" commit -q -m release && git -C "$src/w" tag v1 && git -C "$src/w" push -q origin HEAD:refs/heads/main v1
  git -C "$src/w" rev-parse HEAD > "$W/v1.sha"; rm -rf "$src"
}
manifest() { git -C "$B" show refs/tags/v1:app/release.yaml; }
`

// move puts the bare repository's tag elsewhere, behind the hook's back.
const move = commits + `move() { git -C $B update-ref refs/tags/v1 "$1"; }
`

func releases() []Case {
	repo, remade := []string{bare}, []string{bare, sha}
	change := func(sed string) string {
		return remake + `manifest > $P/m; sed '` + sed + `' $P/m | remake app/release.yaml`
	}
	return []Case{
		wrong(1, "bare-repo", "no bare repository", repo, `rm -rf $B`),
		wrong(1, "bare-repo", "a repository with a work tree", repo, `rm -rf $B; git init -q $B`),
		wrong(1, "clone", "no clone", []string{clone}, `rm -rf `+clone),
		wrong(1, "clone", "origin is the read-only daemon", []string{clone}, `git -C `+clone+` remote set-url origin git://gitd.gitsrv.svc.cluster.local:9418/rev.git`),
		wrong(1, "clone", "a clone of another lab's repository", []string{clone}, `git -C `+clone+` remote set-url origin /srv/bare/ci.git`),
		wrong(1, "first-commit", "pushed to master", repo, `git -C $B branch -m main master`),
		wrong(1, "first-commit", "nothing was pushed", repo, `rm -rf $B; git init -q --bare $B`),
		wrong(1, "first-commit", "the file is in another folder", remade, remake+`manifest > $P/m; remake deploy/release.yaml < $P/m`),
		wrong(1, "first-commit", "a namespace in the manifest", remade, change(`s/^  name: release$/&\n  namespace: rev-branch/`)),
		wrong(1, "first-commit", "another name", remade, change(`s/name: release/name: releases/`)),
		wrong(1, "first-commit", "the version is a number", remade, change(`s/version: v1/version: 1/`)),
		wrong(1, "first-commit", "the version has another key", remade, change(`s/version: v1/release: v1/`)),
		wrong(1, "first-commit", "a Secret", remade, change(`s/kind: ConfigMap/kind: Secret/`)),
		wrong(1, "sha-file", "no v1.sha", []string{sha}, `rm `+sha),
		wrong(1, "sha-file", "a short SHA", []string{sha}, `cut -c1-12 `+sha+` > $P/s; cp $P/s `+sha),
		wrong(1, "sha-file", "the whole log", []string{sha}, `git -C $B log --format=%H refs/heads/main > `+sha),
		wrong(1, "sha-file", "the SHA and its ref, as git ls-remote has them", []string{sha}, `git ls-remote $B refs/tags/v1 > `+sha),
		wrong(1, "sha-file", "the tag's name", []string{sha}, `echo v1 > `+sha),
		wrong(1, "sha-commit", "the SHA of an annotated tag itself", remade, commits+`git -C $B tag -f -a -m v1 v1 "$first" >/dev/null; git -C $B rev-parse refs/tags/v1 > `+sha),
		wrong(1, "sha-commit", "a made-up SHA", []string{sha}, `echo 0123456789012345678901234567890123456789 > `+sha),
		wrong(1, "sha-commit", "the commit of v2", []string{sha}, commits+`echo "$second" > `+sha),
		wrong(1, "sha-commit", "a commit that was not pushed", []string{sha, clone}, `git -C `+clone+` commit -q --allow-empty -m local; git -C `+clone+` rev-parse HEAD > `+sha),
		wrong(1, "tag", "the tag was not pushed", repo, `git -C $B update-ref -d refs/tags/v1`),
		wrong(1, "tag", "another tag", repo, `git -C $B tag V1 v1; git -C $B update-ref -d refs/tags/v1`),
		wrong(1, "tag", "a branch instead of a tag", repo, commits+`git -C $B update-ref -d refs/tags/v1; git -C $B branch v1 "$first"`),
		wrong(1, "tag", "a branch beside the tag", repo, commits+`git -C $B update-ref refs/heads/v1 "$first"`),
		wrong(1, "tag", "the tag is on a commit beside main", repo, move+`move "$(git -C $B -c user.name=x -c user.email=x@x commit-tree -m other -p "$first" "$first^{tree}")"`),
		wrong(1, "tag", "the tag is on a file", repo, move+`move "$(git -C $B rev-parse refs/heads/main:app/release.yaml)"`),
		right(1, "an annotated tag", repo, commits+`git -C $B tag -f -a -m "release v1" v1 "$first" >/dev/null`),
		right(1, "no line end in v1.sha", []string{sha}, `tr -d '\n' < `+sha+` > $P/s; cp $P/s `+sha),
		right(1, "v1.sha from another system", []string{sha}, dos(sha)),
		right(1, "the manifest is JSON with labels", remade, remake+`remake app/release.yaml <<'END'
{"kind": "ConfigMap", "apiVersion": "v1", "data": {"version": "v1", "note": "x"}, "metadata": {"labels": {"team": "a"}, "name": "release"}}
END`),
		right(1, "more in the file and in the repository", remade, remake+`{ printf 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: other\n---\n'; manifest; } > $P/m; remake app/release.yaml < $P/m`),
		right(1, "packed refs", repo, `git -C $B pack-refs --all && git -C $B gc -q`),
		right(1, "origin is a file URL", []string{clone}, `git -C `+clone+` remote set-url origin file://$B`),
		right(1, "the bare repository is behind a link", repo, `mv $B $B.real; ln -s rev.git.real $B`).Undone(`rm -rf $B.real`),
	}
}

func guards() []Case {
	file, text := []string{hook}, []string{guard}
	sh := func(body string) string { return "script " + hook + " <<'END'\n" + body + "\nEND" }
	const zero = `0000000000000000000000000000000000000000`
	return []Case{
		wrong(5, "tag-restored", "the hook was there first, and refused to have the tag put back", []string{bare}, move+`move "$second"`),
		wrong(5, "tag-restored", "the tag was put back only locally", []string{bare}, move+`move "$second"; rm `+hook),
		wrong(5, "tag-restored", "the tag is on the commit that undid v2", []string{bare}, move+`move "$(git -C $B rev-parse refs/heads/main)"; rm `+hook),
		wrong(5, "hook-file", "no hook", file, `rm `+hook),
		wrong(5, "hook-file", "not executable", file, `chmod 644 `+hook),
		wrong(5, "hook-file", "another hook's name", file, `mv `+hook+` $B/hooks/update`).Undone(`rm -f $B/hooks/update`),
		wrong(5, "hook-file", "in the clone", file, `mv `+hook+` $W/repo/.git/hooks/`).Undone(`rm -f $W/repo/.git/hooks/pre-receive`),
		wrong(5, "hook-accepts", "it refuses everything", file, sh(`#!/bin/sh
echo no; exit 1`)),
		wrong(5, "hook-accepts", "it refuses every tag", file, sh(`#!/bin/sh
while read -r old new ref; do case $ref in refs/tags/*) exit 1 ;; esac; done`)),
		wrong(5, "hook-accepts", "it refuses whatever is there already", file, sh(`#!/bin/sh
while read -r old new ref; do [ "$old" = `+zero+` ] || exit 1; done`)),
		wrong(5, "hook-accepts", "the new SHA is taken for the old one", file, sh(`#!/bin/sh
while read -r new old ref; do case $ref in refs/tags/*) [ "$old" = `+zero+` ] || exit 1 ;; esac; done`)),
		wrong(5, "hook-keeps-tags", "it only says so", file, sh(`#!/bin/sh
while read -r old new ref; do
  case $ref in refs/tags/*) [ "$old" = `+zero+` ] || echo "$ref is not to be moved" >&2 ;; esac
done
exit 0`)),
		wrong(5, "hook-keeps-tags", "only v1", file, sh(`#!/bin/sh
while read -r old new ref; do
  [ "$ref" != refs/tags/v1 ] || [ "$old" = `+zero+` ] || exit 1
done`)),
		wrong(5, "hook-keeps-tags", "forward is taken", file, sh(`#!/bin/sh
while read -r old new ref; do
  case $ref in refs/tags/*) ;; *) continue ;; esac
  [ "$old" != `+zero+` ] || continue
  git merge-base --is-ancestor "$old" "$new" || exit 1
done`)),
		wrong(5, "hook-keeps-tags", "annotated tags only", file, sh(`#!/bin/sh
while read -r old new ref; do
  case $ref in refs/tags/*) ;; *) continue ;; esac
  [ "$old" = `+zero+` ] || [ "$(git cat-file -t "$old")" != tag ] || exit 1
done`)),
		wrong(5, "hook-keeps-tags", "the loop is behind a pipe", file, sh(`#!/bin/sh
bad=0
cat | while read -r old new ref; do
  case $ref in refs/tags/*) [ "$old" = `+zero+` ] || bad=1 ;; esac
done
exit $bad`)),
		wrong(5, "hook-keeps-tags", "the ref is compared with a short name", file, sh(`#!/bin/sh
while read -r old new ref; do
  case $ref in tags/*) [ "$old" = `+zero+` ] || exit 1 ;; esac
done`)),
		wrong(5, "hook-deletes", "a tag may be deleted", file, sh(`#!/bin/sh
while read -r old new ref; do
  case $ref in refs/tags/*) [ "$old" = `+zero+` ] || [ "$new" = `+zero+` ] || exit 1 ;; esac
done`)),
		wrong(5, "hook-several", "it reads one line only", file, sh(`#!/bin/sh
read -r old new ref
case $ref in refs/tags/*) [ "$old" = `+zero+` ] || exit 1 ;; esac`)),
		wrong(5, "hook-several", "the last line wins", file, sh(`#!/bin/sh
while read -r old new ref; do
  s=0
  case $ref in refs/tags/*) [ "$old" = `+zero+` ] || s=1 ;; esac
done
exit $s`)),
		wrong(5, "guard-file", "no guard.txt", text, `rm `+guard),
		wrong(5, "guard-file", "standard error was not saved", text, `: > `+guard),
		wrong(5, "guard-file", "a made-up refusal", text, `echo 'v1: rejected by the hook' > `+guard),
		wrong(5, "guard-file", "a refusal by git itself", text, `printf 'To /srv/bare/rev.git\n ! [rejected]        v1 -> v1 (already exists)\nerror: failed to push some refs\nhint: Updates were rejected because the tag already exists in the remote.\n' > `+guard),
		wrong(5, "guard-file", "the refusal of another ref", text, `printf 'To /srv/bare/rev.git\n ! [remote rejected] main -> main (pre-receive hook declined)\n' > `+guard),
		wrong(5, "guard-file", "only that it was deleted in vain", text, `printf 'To /srv/bare/rev.git\n ! [remote rejected] v1 (pre-receive hook declined)\n' > `+guard),
		wrong(5, "guard-file", "the push was taken", text, `printf 'To /srv/bare/rev.git\n + 1111111...2222222 v1 -> v1 (forced update)\n' > `+guard),
		right(5, "bash, with a pattern", file, sh(`#!/bin/bash
set -euo pipefail
while read -r old new ref; do
  if [[ $ref =~ ^refs/tags/ && ! $old =~ ^0+$ ]]; then echo "$ref stays" >&2; exit 1; fi
done`)),
		right(5, "it asks git what is there", file, sh(`#!/bin/sh
bad=0
while read -r old new ref; do
  case $ref in refs/tags/*) if git show-ref --verify --quiet "$ref"; then bad=1; fi ;; esac
done
exit $bad`)),
		right(5, "grep and no loop", file, sh(`#!/bin/sh
! grep -vE '^0{40} ' | grep -qE ' refs/tags/'`)),
		right(5, "the hook is a link", file, `mv `+hook+` $W/hook; ln -s $W/hook `+hook).Undone(`rm -f $W/hook`),
		right(5, "core.hooksPath", []string{hook, "$B/config"}, `mkdir -p $W/hooks; mv `+hook+` $W/hooks/; git -C $B config core.hooksPath $W/hooks`).Undone(`rm -rf $W/hooks`),
		right(5, "saved with colours and carriage returns", text, `sed 's/!/\x1b[31m!\x1b[m/; s/$/\r/' `+guard+` > $P/g; cp $P/g `+guard),
		right(5, "the form for scripts", text, `printf 'To /srv/bare/rev.git\n!\trefs/tags/v1:refs/tags/v1\t[remote rejected] (pre-receive hook declined)\nDone\n' > `+guard),
		right(5, "a commit was pushed to the tag", text, `printf 'remote: no\nTo /srv/bare/rev.git\n ! [remote rejected] main -> v1 (pre-receive hook declined)\nerror: failed\n' > `+guard),
		right(5, "the tag came back annotated", []string{bare}, commits+`git -C $B tag -f -a -m v1 v1 "$first" >/dev/null`),
	}
}

func rollbacks() []Case {
	file, both := []string{rollback}, []string{bare, rollback}
	// put makes a commit on top of $2 whose ConfigMap says version $1, and puts main on it.
	const put = commits + `put() {
  blob=$(git -C $B show refs/tags/v1:app/release.yaml | sed "s/version: v1/version: $1/" | git -C $B hash-object -w --stdin)
  app=$(printf '100644 blob %s\trelease.yaml\n' "$blob" | git -C $B mktree)
  tree=$(printf '040000 tree %s\tapp\n' "$app" | git -C $B mktree)
  git -C $B update-ref refs/heads/main "$(git -C $B commit-tree -p "$2" -m "version $1" "$tree")"
}
`
	tip := `git -C $B rev-parse refs/heads/main`
	return []Case{
		wrong(6, "rollback-commit", "main was reset and pushed by force", both, commits+`git -C $B update-ref refs/heads/main "$first"; field `+rollback+` revert_sha "\"$first\""; field `+rollback+` equals_v1_sha true`),
		wrong(6, "rollback-commit", "a new commit, but on top of v1", both, put+`put v1 "$first"; field `+rollback+` revert_sha "\"$(`+tip+`)\""`),
		wrong(6, "rollback-commit", "main is still at v2", []string{bare}, commits+`git -C $B update-ref refs/heads/main "$second"`),
		wrong(6, "rollback-commit", "main goes on to v3", []string{bare}, put+`put v3 "$(`+tip+`)"`),
		wrong(6, "rollback-commit", "the version is misspelt", []string{bare}, put+`put V1 "$second"`),
		wrong(6, "rollback-file", "no rollback.json", file, `rm `+rollback),
		wrong(6, "rollback-file", "no JSON", file, `echo 'revert_sha: abc' > `+rollback),
		wrong(6, "rollback-file", "the boolean is a string", file, `field `+rollback+` equals_v1_sha '"false"'`),
		wrong(6, "rollback-file", "the boolean is a number", file, `field `+rollback+` equals_v1_sha 0`),
		wrong(6, "rollback-file", "a field is missing", file, `sed -i '/"deployed"/d' `+rollback),
		wrong(6, "rollback-file", "deployed is the whole data", file, `field `+rollback+` deployed '{"version": "v1"}'`),
		wrong(6, "rollback-values", "the commit that was undone", file, commits+`field `+rollback+` revert_sha "\"$second\""`),
		wrong(6, "rollback-values", "the commit of v1", file, commits+`field `+rollback+` revert_sha "\"$first\""; field `+rollback+` equals_v1_sha true`),
		wrong(6, "rollback-values", "a made-up commit", file, `field `+rollback+` revert_sha '"0123456789012345678901234567890123456789"'`),
		wrong(6, "rollback-values", "a branch instead of a SHA", file, `field `+rollback+` revert_sha '"main"'`),
		wrong(6, "rollback-values", "what was deployed before", file, `field `+rollback+` deployed '"v2"'`),
		wrong(6, "rollback-values", "the contents are compared, not the SHAs", file, `field `+rollback+` equals_v1_sha true`),
		right(6, "a short SHA", file, `field `+rollback+` revert_sha "\"$(`+tip+` | cut -c1-10)\""`),
		right(6, "compact JSON with more in it", file, `tr -d '\n ' < `+rollback+` | sed 's/}$/,"note":"seen"}/' > $P/r; cp $P/r `+rollback),
		right(6, "the commit was made by hand", both, put+follow+`put v1 "$second"; follow; field `+rollback+` revert_sha "\"$(`+tip+`)\""`),
		right(6, "main went on since, and still says v1", []string{bare}, put+follow+`put v1 "$(`+tip+`)"; follow`),
	}
}
