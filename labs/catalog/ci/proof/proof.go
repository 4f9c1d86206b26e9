// Package proof is the author's proof of lab ci: wrong answers that must be refused by the right check, other right answers that must
// be taken, and what undoing each step must do to the verdict. It is data; a test ships it into a guest where the lab is solved.
package proof

import (
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/labs/check"
)

// Case is one answer. Before and After are shell scripts for root in a guest where all steps pass; between them,
// `verify --step Step` must give Want.
type Case struct {
	Step int
	Name string
	// Keep are files and folders that Setup changes; After puts them back.
	Keep []string
	// Setup makes the answer, Undo what Keep does not put back.
	Setup, Undo string
	// Want is the step's state and WantCheck the check that decides it, empty where it passes.
	Want      check.State
	WantCheck string
}

// Undo takes one step's work away.
type Undo struct {
	Step int
	// Keep and Setup are as in Case.
	Keep  []string
	Setup string
	// Then are the steps that are skipped because of it.
	Then []int
}

// prelude gives the scripts their words: W is the lab's folder, B the bare repository.
const prelude = `set -eu
export KUBECONFIG=/etc/rancher/k3s/k3s.yaml GIT_TERMINAL_PROMPT=0
W=/root/cgoa-ci B=/srv/bare/ci.git P=/var/tmp/labctl-proof
keep() {
  rm -rf "$P"; mkdir -p "$P"
  for f in "$@"; do
    d=$P$(dirname "$f"); mkdir -p "$d"
    if [ -e "$f" ]; then cp -a "$f" "$d/"; else echo "$f" >> "$P/absent"; fi
    echo "$f" >> "$P/kept"
  done
}
back() {
  [ -e "$P/kept" ] || return 0
  while read -r f; do
    rm -rf "$f"
    if ! grep -qxF "$f" "$P/absent" 2>/dev/null; then cp -a "$P$f" "$(dirname "$f")/"; fi
  done < "$P/kept"
  rm -rf "$P"
}
script() { cat > "$1"; chmod 755 "$1"; }
field() { sed -i "s|\"$2\": .*[^,]|\"$2\": $3|" "$1"; } # one field of a JSON file with a line each
`

func before(keep []string, setup string) string {
	return prelude + "keep " + strings.Join(keep, " ") + "\n" + setup + "\n"
}

// Before makes the answer.
func (c Case) Before() string { return before(c.Keep, c.Setup) }

// After puts the guest back to where the lab is solved. It may be run twice.
func (c Case) After() string {
	script := prelude + "back\n" + c.Undo + "\n"
	if slices.Contains(c.Keep, bare) || c.Step == 1 {
		// Argo CD may have looked at the repository, or at its Application, meanwhile.
		script += settle
	}
	return script
}

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

// Before takes the step's work away.
func (u Undo) Before() string { return before(u.Keep, u.Setup) }

// After puts it back.
func (u Undo) After() string { return prelude + "back\n" }

// The lab's files as the scripts name them.
const (
	bare      = "$B"
	app       = "$W/app.yaml"
	broken    = "$W/broken.json"
	ciConfig  = "$W/ci-kubeconfig"
	validator = "$W/validate.sh"
	hook      = "$B/hooks/pre-receive"
	blocked   = "$W/blocked.txt"
	bump      = "$W/bump.sh"
	report    = "$W/report.json"
)

func wrong(step int, id, name string, keep []string, setup string) Case {
	return Case{Step: step, Name: name, Keep: keep, Setup: setup, Want: check.Failed, WantCheck: id}
}

func right(step int, name string, keep []string, setup string) Case {
	return Case{Step: step, Name: name, Keep: keep, Setup: setup, Want: check.Passed}
}

func (c Case) undo(script string) Case { c.Undo = script; return c }

// Undos take the steps' work away, one each.
func Undos() []Undo {
	return []Undo{
		{1, []string{app}, "rm " + app, []int{2, 5, 6, 7, 8}},
		{2, []string{broken}, "rm " + broken, []int{7, 8}},
		{3, []string{ciConfig}, "rm " + ciConfig, []int{4, 5, 6, 7, 8}},
		{4, []string{validator}, "rm " + validator, []int{5, 6, 7, 8}},
		{5, []string{hook}, "rm " + hook, []int{6, 7, 8}},
		{6, []string{blocked}, "rm " + blocked, nil},
		{7, []string{bump}, "rm " + bump, []int{8}},
		{8, []string{report}, "rm " + report, nil},
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

// sample names one mistake that learners make often at each step, and two right answers that differ from the text's.
var sample = map[int][]string{
	1: {"no self-heal"},
	2: {"Synced is guessed"},
	3: {"edit in ci-web by the account's group", "three rules instead of one"},
	4: {"a client-side dry run"},
	5: {"it reads one line only", "bash, by way of an index"},
	6: {"standard error was not saved"},
	7: {"it does not start from the remote main"},
	8: {"a boolean is a string"},
}

// Sample are the few of Cases for which there is time in every run of the tests.
func Sample() []Case {
	return slices.DeleteFunc(Cases(), func(c Case) bool { return !slices.Contains(sample[c.Step], c.Name) })
}
