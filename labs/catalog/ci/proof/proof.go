// Package proof is the author's proof of lab ci: wrong answers that must be refused by the right check, other right answers that must
// be taken, and what undoing each step must do to the verdict. It is data; a test ships it into a guest where the lab is solved.
package proof

import "github.com/cgoa-labs/labctl/labs/proof"

// Case and Undo are of the common form.
type (
	Case = proof.Case
	Undo = proof.Undo
)

// settle has Argo CD look again and waits until it is in step with main.
const settle = `kubectl -n argocd annotate app ci-web argocd.argoproj.io/refresh=hard --overwrite >/dev/null
tip=$(git -C "$B" rev-parse refs/heads/main)
for i in $(seq 120); do
  seen=$(for f in sync.revision sync.status health.status operationState.phase; do kubectl -n argocd get app ci-web -o "jsonpath={.status.$f}"; echo; done | tr '\n' ' ')
  [ "$seen" = "$tip Synced Healthy Succeeded " ] && exit 0
  sleep 2
done
echo "ci-web is not in step: $seen" >&2
exit 1
`

// The Application is made in step 1.
var book = proof.Book{Lab: "ci", Apps: 1, Settle: settle}

func wrong(step int, id, name string, keep []string, setup string) Case {
	return book.Wrong(step, id, name, keep, setup)
}

func right(step int, name string, keep []string, setup string) Case {
	return book.Right(step, name, keep, setup)
}

// All is the whole proof.
func All() proof.Catalogue { return proof.Catalogue{Cases: Cases(), Undos: Undos()} }

// The lab's files as the scripts name them.
const (
	bare      = proof.Bare
	app       = "$W/app.yaml"
	broken    = "$W/broken.json"
	ciConfig  = "$W/ci-kubeconfig"
	validator = "$W/validate.sh"
	hook      = "$B/hooks/pre-receive"
	blocked   = "$W/blocked.txt"
	bump      = "$W/bump.sh"
	report    = "$W/report.json"
)

// Undos take the steps' work away, one each.
func Undos() []Undo {
	return []Undo{
		book.Undo(1, app, 2, 5, 6, 7, 8),
		book.Undo(2, broken, 7, 8),
		book.Undo(3, ciConfig, 4, 5, 6, 7, 8),
		book.Undo(4, validator, 5, 6, 7, 8),
		book.Undo(5, hook, 6, 7, 8),
		book.Undo(6, blocked),
		book.Undo(7, bump, 8),
		book.Undo(8, report),
	}
}

// Cases are all answers, wrong and right, step by step.
func Cases() []Case {
	var all []Case
	for _, cases := range [][]Case{baseline(), brokenCases(), identity(), validate(), hooks(), blockedCases(), bumps(), reports()} {
		all = append(all, cases...)
	}
	return all
}

// Sample are the few of Cases for which there is time in every run of the tests: mistakes that learners make often, and a right answer
// that is not the text's.
func Sample() []Case {
	return proof.Pick(Cases(), map[int][]string{
		2: {"Synced is guessed"},
		3: {"edit in ci-web by the account's group"},
		4: {"a client-side dry run"},
		5: {"it reads one line only", "bash, by way of an index"},
		7: {"it does not start from the remote main"},
	})
}
