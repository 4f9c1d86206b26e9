// Package strict finds what is wrong with settings: unknown names, values of another kind, each with its source and fix.
package strict

import "strings"

// Problem is one setting that cannot be used.
type Problem struct {
	// Source is where it was written: a file and line, an environment variable or a flag.
	Source string
	// Key is the setting, empty where there is none such.
	Key string
	// What is wrong, and Fix is what to write instead.
	What, Fix string
}

func (p Problem) String() string {
	s := p.Source + ": "
	if p.Key != "" {
		s += p.Key + ": "
	}
	return s + p.What
}

// Error says which settings cannot be used, each with its source.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	lines := []string{"several settings cannot be used:"}
	for _, p := range e.Problems {
		lines = append(lines, "  "+p.String()+" ("+p.Fix+")")
	}
	return strings.Join(lines, "\n")
}

// Hint is the fix, where there is one problem.
func (e *Error) Hint() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].Fix
	}
	return ""
}

// Nearest is the candidate that word was probably meant to be, or "" where none is near.
func Nearest(word string, candidates []string) string {
	best, bestDistance := "", max(len(word)/3, 1)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the number of letters to add, drop or change to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
