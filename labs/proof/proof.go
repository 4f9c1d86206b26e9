// Package proof is the form of an author's proof of a lab: wrong answers that must be refused by the right check, other right answers that
// must be taken, and what undoing each step must do to the verdict. It is data; a test ships it into a guest where the lab is solved.
package proof

import (
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/labs/check"
)

// Bare is the bare repository as scripts name it; W is the lab's folder.
const Bare = "$B"

// Book makes the answers to one lab.
type Book struct {
	// Lab is the lab's id.
	Lab string
	// Settle is the end of a script that may have made Argo CD look at something else: it waits until all is in step again. Such are
	// the answers that change the bare repository, and those to the step Apps, in which the Applications are made.
	Settle string
	Apps   int
}

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

	book Book
}

// Undo takes one step's work away.
type Undo struct {
	Step int
	// Keep and Setup are as in Case.
	Keep        []string
	Setup, Back string
	// Then are the steps that are skipped because of it.
	Then []int

	book Book
}

// Wrong is an answer that the check id must refuse.
func (b Book) Wrong(step int, id, name string, keep []string, setup string) Case {
	return Case{Step: step, Name: name, Keep: keep, Setup: setup, Want: check.Failed, WantCheck: id, book: b}
}

// Right is an answer that must be taken.
func (b Book) Right(step int, name string, keep []string, setup string) Case {
	return Case{Step: step, Name: name, Keep: keep, Setup: setup, Want: check.Passed, book: b}
}

// Undone is the case with a script that undoes what Keep does not put back.
func (c Case) Undone(script string) Case { c.Undo = script; return c }

// Undo takes a step away by removing one file; then are the steps that are skipped because of it.
func (b Book) Undo(step int, file string, then ...int) Undo {
	return Undo{Step: step, Keep: []string{file}, Setup: "rm " + file, Then: then, book: b}
}

// With is the undo with a script of its own, and one that puts back what Keep does not.
func (u Undo) With(setup, back string) Undo { u.Setup, u.Back = setup, back; return u }

// prelude gives the scripts their words: W is the lab's folder, B the bare repository.
func (b Book) prelude() string {
	return strings.ReplaceAll(`set -eu
export KUBECONFIG=/etc/rancher/k3s/k3s.yaml GIT_TERMINAL_PROMPT=0
W=/root/cgoa-@LAB@ B=/srv/bare/@LAB@.git P=/var/tmp/labctl-proof
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
`, "@LAB@", b.Lab)
}

func (b Book) before(keep []string, setup string) string {
	return b.prelude() + "keep " + strings.Join(keep, " ") + "\n" + setup + "\n"
}

// Before makes the answer.
func (c Case) Before() string { return c.book.before(c.Keep, c.Setup) }

// After puts the guest back to where the lab is solved. It may be run twice.
func (c Case) After() string {
	script := c.book.prelude() + "back\n" + c.Undo + "\n"
	if slices.Contains(c.Keep, Bare) || c.Step == c.book.Apps {
		script += c.book.Settle
	}
	return script
}

// Before takes the step's work away.
func (u Undo) Before() string { return u.book.before(u.Keep, u.Setup) }

// After puts it back.
func (u Undo) After() string { return u.book.prelude() + "back\n" + u.Back + "\n" }

// Pick is those of cases whose names are given for their step.
func Pick(cases []Case, names map[int][]string) []Case {
	return slices.DeleteFunc(cases, func(c Case) bool { return !slices.Contains(names[c.Step], c.Name) })
}
