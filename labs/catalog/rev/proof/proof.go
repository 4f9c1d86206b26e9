// Package proof is the author's proof of lab rev: wrong answers that must be refused by the right check, other right answers that must be
// taken, and what undoing each step must do to the verdict. It is data; a test ships it into a guest where the lab is solved.
package proof

import "github.com/cgoa-labs/labctl/labs/proof"

// Case and Undo are of the common form.
type (
	Case = proof.Case
	Undo = proof.Undo
)

// follow is a shell function that has Argo CD look again and waits until all three Applications are in step.
const follow = `in_step() {
  for i in $(seq 120); do
    seen=$(kubectl -n argocd get app "$1" -o jsonpath='{.metadata.annotations} {.status.sync.revision} {.status.sync.status} {.status.health.status} {.status.operationState.phase}')
    case $seen in
      *argoproj.io/refresh*|*Running|*Terminating) ;;
      *" $2 Synced Healthy "*) return 0 ;;
    esac
    sleep 2
  done
  echo "$1 is not in step: $seen" >&2
  return 1
}
follow() {
  for a in rev-branch rev-tag rev-sha; do
    kubectl -n argocd annotate app $a argocd.argoproj.io/refresh=hard --overwrite >/dev/null
  done
  in_step rev-branch "$(git -C "$B" rev-parse refs/heads/main)"
  in_step rev-tag "$(git -C "$B" rev-parse 'refs/tags/v1^{commit}')"
  in_step rev-sha "$(cat "$W/v1.sha")"
}
`

var book = proof.Book{Lab: "rev", Apps: 2, Settle: follow + "follow\n"}

func wrong(step int, id, name string, keep []string, setup string) Case {
	return book.Wrong(step, id, name, keep, setup)
}

func right(step int, name string, keep []string, setup string) Case {
	return book.Right(step, name, keep, setup)
}

// The lab's files as the scripts name them.
const (
	bare       = proof.Bare
	clone      = "$W/repo"
	sha        = "$W/v1.sha"
	apps       = "$W/apps.yaml"
	after      = "$W/after-commit.json"
	tagHistory = "$W/tag-history.json"
	hook       = "$B/hooks/pre-receive"
	guard      = "$W/guard.txt"
	rollback   = "$W/rollback.json"
	kubeconfig = "$W/kubeconfig"
	refused    = "$W/rollback-refused.txt"
	report     = "$W/report.json"
)

// commits gives scripts the first version's commit, and the second's, which the solution leaves right below main.
const commits = `first=$(cat $W/v1.sha) second=$(git -C $B rev-parse refs/heads/main~1)
`

// dos makes a file look as if it came from another system: a mark at its beginning, and other line ends.
func dos(file string) string {
	return `{ printf '\357\273\277'; sed 's/$/\r/' ` + file + `; } > $P/dos; cp $P/dos ` + file
}

// All is the whole proof.
func All() proof.Catalogue { return proof.Catalogue{Cases: Cases(), Undos: Undos()} }

// Undos take the steps' work away, one each.
func Undos() []Undo {
	return []Undo{
		book.Undo(1, sha, 2, 3, 4, 5, 6, 7, 8),
		book.Undo(2, apps, 3, 4, 5, 6, 7, 8),
		book.Undo(3, after, 4, 5, 6, 8),
		book.Undo(4, tagHistory, 5, 8),
		book.Undo(5, hook, 8),
		book.Undo(6, rollback, 8),
		book.Undo(7, refused, 8),
		book.Undo(8, report),
	}
}

// Cases are all answers, wrong and right, step by step.
func Cases() []Case {
	var all []Case
	for _, cases := range [][]Case{releases(), applications(), afters(), histories(), guards(), rollbacks(), refusals(), reports()} {
		all = append(all, cases...)
	}
	return all
}

// Sample are the few of Cases for which there is time in every run of the tests: mistakes that learners make often, and a right answer
// that is not the text's.
func Sample() []Case {
	return proof.Pick(Cases(), map[int][]string{
		2: {"rev-sha tracks the tag"},
		5: {"only v1", "grep and no loop"},
		7: {"a plain copy"},
	})
}
