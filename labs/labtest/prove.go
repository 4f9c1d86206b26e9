package labtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/judge/phrases"
	"github.com/cgoa-labs/labctl/labs/proof"
	"github.com/cgoa-labs/labctl/labs/text"
)

// Fresh wants a guest without the lab to pass no step, and its reset to change nothing.
func (l *Lab) Fresh(t *testing.T) {
	for _, s := range l.On(t).Verify(0).Steps {
		require.Contains(t, []check.State{check.Failed, check.Skipped}, s.State, "step %d", s.Step)
	}
	writes := len(l.API.Writes())
	l.On(t).Reset()
	require.Len(t, l.API.Writes(), writes, "a reset of a fresh guest changes nothing")
}

// Proof is an author's proof.
type Proof struct {
	Cases []proof.Case
	Undos []proof.Undo
	// Skip says which answers need more of a cluster than there is here. It may be nil.
	Skip func(proof.Case) bool
}

// Prove is the author's proof as far as it goes without a real cluster, in a guest without the lab.
func (l *Lab) Prove(t *testing.T, p Proof) {
	steps := len(l.Engine.Lab.Steps)
	t.Run("solved step by step", func(t *testing.T) {
		l := l.On(t)
		for n := 1; n <= steps; n++ {
			l.Solve(n, n)
			r := l.Verify(0)
			require.Len(t, r.Steps, steps)
			for _, s := range r.Steps {
				if s.Step <= n {
					require.Equal(t, check.Passed, s.State, "step %d after solving %d\n%s", s.Step, n, Explain(r))
				} else {
					require.NotEqual(t, check.Passed, s.State, "step %d before it is done", s.Step)
				}
			}
		}
	})
	if t.Failed() {
		return
	}
	t.Run("verify changes nothing", func(t *testing.T) {
		writes, before := l.API.Writes(), l.Snapshot(t)
		l.On(t).Passes()
		require.Equal(t, writes, l.API.Writes())
		require.Equal(t, before, l.Snapshot(t))
		l.ScratchIsEmpty(t)
	})
	t.Run("solve again changes nothing", func(t *testing.T) {
		before := l.Snapshot(t)
		l.On(t).Solve(1, steps)
		require.Equal(t, before, l.Snapshot(t))
	})
	t.Run("undo", func(t *testing.T) {
		l := l.On(t)
		for _, u := range p.Undos {
			l.Sh(u.Before())
			for _, s := range l.Verify(0).Steps {
				want := check.Passed
				if s.Step == u.Step {
					want = check.Failed
				} else if slices.Contains(u.Then, s.Step) {
					want = check.Skipped
				}
				require.Equal(t, want, s.State, "step %d after undoing %d", s.Step, u.Step)
			}
			l.Sh(u.After())
		}
	})
	t.Run("answers", func(t *testing.T) {
		tried := map[string]int{}
		for _, c := range p.Cases {
			if p.Skip != nil && p.Skip(c) {
				continue
			}
			// Each takes a second or more, since all that a step needs is asked too; `make proof` sets PROOF.
			if tried[fmt.Sprint(c.Step, c.Want)]++; tried[fmt.Sprint(c.Step, c.Want)] > 2 && os.Getenv("PROOF") != "all" {
				continue
			}
			t.Run(fmt.Sprintf("%d %s", c.Step, c.Name), func(t *testing.T) {
				l := l.On(t)
				l.Sh(c.Before())
				r := l.Verify(c.Step)
				l.Sh(c.After())
				require.Equal(t, c.Want, r.State, "%s", Explain(r))
				last := r.Steps[0].Checks[len(r.Steps[0].Checks)-1]
				if c.WantCheck != "" {
					require.Equal(t, c.WantCheck, last.ID, "%s", Explain(r))
					require.NotEmpty(t, last.Hint)
				}
			})
		}
		l.On(t).Passes()
	})
	t.Run("the API server goes away", func(t *testing.T) {
		l.API.Away(true)
		defer l.API.Away(false)
		for _, s := range l.On(t).Verify(0).Steps {
			require.Equal(t, check.Error, s.State)
		}
	})
	t.Run("reset", func(t *testing.T) {
		l := l.On(t)
		l.Reset()
		for _, s := range l.Verify(0).Steps {
			require.NotEqual(t, check.Passed, s.State)
		}
		l.Solve(1, 1)
	})
	if os.Getenv("PROOF") != "all" {
		return
	}
	t.Run("reset after every stage", func(t *testing.T) {
		l := l.On(t)
		for n := 1; n <= steps; n++ {
			l.Solve(1, n)
			l.Reset()
			for _, s := range l.Verify(0).Steps {
				require.NotEqual(t, check.Passed, s.State, "step %d, reset after %d", s.Step, n)
			}
		}
	})
}

// Interrupt ends a verify of a step at the check with the title, and wants nothing to be left of it.
func (l *Lab) Interrupt(t *testing.T, step int, title string) {
	before := l.Snapshot(t)
	why := errors.New("Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	reached := false
	l.Engine.Log = func(line string) {
		if strings.HasSuffix(line, ": "+title) {
			reached = true
			cancel(why)
		}
	}
	r, err := l.Engine.Verify(ctx, step, 0)
	require.True(t, reached, "no check is called %s", title)
	require.ErrorIs(t, err, why)
	require.Equal(t, check.Error, r.State)
	l.ScratchIsEmpty(t)
	require.Equal(t, before, l.Snapshot(t))
}

// Whole holds a lab, its words, its proof and the code of its checks against each other. code are the files that name hints.
func Whole(t *testing.T, lab labs.Lab, words text.Text, p Proof, code ...string) {
	seen := map[string]bool{}
	for i, step := range lab.Steps {
		require.NotEmpty(t, step.Title)
		require.NotEmpty(t, step.Goal)
		require.NotEmpty(t, step.Note)
		for _, need := range step.Needs {
			require.Less(t, need, i+1, "step %d needs a later one", i+1)
		}
		for _, c := range step.Checks {
			require.False(t, seen[c.ID], "%s is there twice", c.ID)
			seen[c.ID] = true
		}
	}
	for _, c := range lab.Fresh {
		seen[c.ID] = true
	}
	for id := range words.Checks {
		require.True(t, seen[id], "a title for a check that is not there: %s", id)
	}
	for _, c := range p.Cases {
		require.True(t, c.WantCheck == "" || seen[c.WantCheck], "the proof wants a check that is not there: %s", c.WantCheck)
	}
	var all strings.Builder
	for _, pattern := range code {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			all.Write(data)
		}
	}
	for key := range words.Hints {
		require.Contains(t, all.String(), `"`+key+`"`, "a hint that nothing gives")
	}
	translated(t, lab.ID, words)
	fresh(t, lab.ID)
	spoken(t)
}

// spoken wants the phrases of the lab's own checks in every language, each once: here, or among those that all labs share.
func spoken(t *testing.T) {
	folders := []string{"."}
	for _, folder := range []string{"ground", "solution"} {
		if _, err := os.Stat(folder); err == nil {
			folders = append(folders, folder)
		}
	}
	said := Phrases(t, folders...)
	for _, language := range text.Languages {
		if language == text.Native {
			continue
		}
		shared, err := phrases.In(language)
		require.NoError(t, err)
		data, err := os.ReadFile("text/" + language + ".yaml")
		require.NoError(t, err)
		words, err := text.Parse("", language, data)
		require.NoError(t, err)
		for phrase := range words.Phrases {
			if said[phrase] == "" {
				t.Errorf("text/%s.yaml: words for %q, which no check says: take it out of phrases", language, phrase)
			}
			if shared[phrase] != "" {
				t.Errorf("text/%s.yaml: all labs have words for %q: take it out of phrases", language, phrase)
			}
		}
		all := maps.Clone(shared)
		maps.Copy(all, words.Phrases)
		Translated(t, language, said, all)
	}
}

// fresh wants no text that was translated from other words than its source has now. TRANSLATED=1 says that all of them were looked at again.
func fresh(t *testing.T, lab string) {
	data, err := os.ReadFile("text/" + text.Source + ".yaml")
	require.NoError(t, err)
	source, err := text.Parse(lab, text.Source, data)
	require.NoError(t, err)
	path := "text/" + text.TranslatedFile
	if os.Getenv("TRANSLATED") != "" {
		now, err := text.Translated(source)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, now, 0o644))
	}
	from, err := os.ReadFile(path)
	require.NoError(t, err)
	stale, err := text.Stale(source, from)
	require.NoError(t, err)
	require.Empty(t, stale, "the Korean text has changed since these were translated: translate them again, then run the test with TRANSLATED=1")
}

// Speaks wants a lab that says everything in the language that it was made with, in each of them. in is its text, and make makes it.
func Speaks(t *testing.T, in func(language string) (text.Text, error), make func(language string) (labs.Lab, error)) {
	t.Helper()
	for _, language := range text.Languages {
		words, err := in(language)
		require.NoError(t, err)
		require.Empty(t, words.Foreign)
		lab, err := make(language)
		require.NoError(t, err)
		require.Equal(t, words.Title, lab.Title)
		for i, step := range lab.Steps {
			require.Empty(t, words.Steps[i].Foreign, "%s, step %d", language, i+1)
			require.Equal(t, words.Steps[i].Title, step.Title)
			for _, c := range step.Checks {
				require.Equal(t, words.Checks[c.ID], c.Title, "%s, step %d", language, i+1)
			}
		}
	}
}

// stepHints is how many hints lead to a step's solution.
const stepHints = 3

// translated wants every file of the lab's texts whole, and with the keys that words has: none is missing, none is too much.
func translated(t *testing.T, lab string, words text.Text) {
	var files []string
	for _, language := range text.Languages {
		files = append(files, "text/"+language+".yaml")
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		said, err := text.Parse(lab, file, data)
		require.NoError(t, err)
		for what, sentence := range map[string]string{"title": said.Title, "goal": said.Goal, "why": said.Why} {
			require.NotEmpty(t, sentence, "%s: %s", file, what)
		}
		require.Len(t, said.Steps, len(words.Steps), file)
		for i, step := range said.Steps {
			require.Len(t, step.Hints, stepHints, "%s: step %d", file, i+1)
			require.NotContains(t, append([]string{step.Title, step.Goal, step.Note}, step.Hints...), "", "%s: step %d", file, i+1)
		}
		for i, step := range said.Steps {
			require.Equal(t, identifiers(words.Steps[i].Goal), identifiers(step.Goal), "%s: step %d, goal", file, i+1)
			require.Equal(t, identifiers(words.Steps[i].Note), identifiers(step.Note), "%s: step %d, note", file, i+1)
			for n, hint := range step.Hints {
				require.Equal(t, identifiers(words.Steps[i].Hints[n]), identifiers(hint), "%s: step %d, hint %d", file, i+1, n+1)
			}
		}
		require.Len(t, said.References, len(words.References), file)
		for what, maps := range map[string][2]map[string]string{"checks": {words.Checks, said.Checks}, "hints": {words.Hints, said.Hints}} {
			for key := range maps[0] {
				require.NotEmpty(t, maps[1][key], "%s: %s: %s", file, what, key)
			}
			require.Len(t, maps[1], len(maps[0]), "%s: %s", file, what)
		}
	}
}

// identifier is what a text must name the same in every language: paths, fields, addresses, names with a dot, slash, colon or underscore.
var identifier = regexp.MustCompile(`/?[A-Za-z0-9][A-Za-z0-9_./:@-]*[/_.:@][A-Za-z0-9_./:@-]*[A-Za-z0-9]|/[a-z][A-Za-z0-9/_.-]+`)

// placeholder is what a language may say in its own words.
var placeholder = regexp.MustCompile(`^[A-Z_/.:-]+$`)

// identifiers are those of a sentence, each once, in order.
func identifiers(sentence string) []string {
	var all []string
	for _, word := range identifier.FindAllString(sentence, -1) {
		if word = strings.Trim(word, ".:"); !placeholder.MatchString(word) {
			all = append(all, word)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Complete wants enough answers for each step, all of them scripts that a shell can read.
func (p Proof) Complete(t *testing.T, steps int) {
	wrong, right, seen := map[int]int{}, map[int]int{}, map[string]bool{}
	var scripts []string
	for _, c := range p.Cases {
		key := fmt.Sprint(c.Step, c.Name)
		require.False(t, seen[key], "step %d has %q twice", c.Step, c.Name)
		seen[key] = true
		scripts = append(scripts, c.Before(), c.After())
		if c.Want == check.Passed {
			require.Empty(t, c.WantCheck, c.Name)
			right[c.Step]++
		} else {
			require.NotEmpty(t, c.WantCheck, c.Name)
			wrong[c.Step]++
		}
	}
	for step := 1; step <= steps; step++ {
		require.GreaterOrEqual(t, wrong[step], 6, "wrong answers to step %d", step)
		require.GreaterOrEqual(t, right[step], 2, "right answers to step %d", step)
	}
	require.Len(t, p.Undos, steps)
	for _, u := range p.Undos {
		scripts = append(scripts, u.Before(), u.After())
	}
	for _, script := range scripts {
		cmd := exec.Command("sh", "-n")
		cmd.Stdin = strings.NewReader(script)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", out, script)
	}
}
