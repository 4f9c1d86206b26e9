package text

import (
	"fmt"
	"strings"
)

// Phrase is what is said of something that was looked at: words with what goes into them, kept apart so that it can be said in another
// language. The zero value says nothing.
type Phrase struct {
	format string
	args   []any
}

// Say is a phrase in English. The format is one of fmt's and a constant, since translations are found by it; an argument may be a phrase.
func Say(format string, args ...any) Phrase { return Phrase{format, args} }

// Verbatim is what a program said or a person wrote: the same in every language.
func Verbatim(s string) Phrase { return Phrase{"%s", []any{s}} }

// List is phrases one after the other.
func List(phrases ...Phrase) Phrase {
	var list Phrase
	for i, p := range phrases {
		if i == 0 {
			list = p
		} else {
			list = Say("%s, %s", list, p)
		}
	}
	return list
}

// Printed is what a program printed, which may be nothing.
func Printed(s string) Phrase {
	if s == "" {
		return Say("it printed nothing")
	}
	return Verbatim(s)
}

// Empty says that there is nothing to say.
func (p Phrase) Empty() bool { return p.format == "" }

// In is the phrase in the words that translations, by the English formats, have for it; English where they have none.
func (p Phrase) In(translations map[string]string) string {
	args := make([]any, len(p.args))
	for i, arg := range p.args {
		if inner, ok := arg.(Phrase); ok {
			arg = inner.In(translations)
		}
		args[i] = arg
	}
	format := p.format
	if translated := translations[format]; translated != "" {
		format = translated
	}
	return fmt.Sprintf(format, args...)
}

// String is the phrase in English.
func (p Phrase) String() string { return p.In(nil) }

// Commit is a commit in short; sha may be empty.
func Commit(sha string) Phrase {
	if sha == "" {
		return Say("no commit")
	}
	return Verbatim(sha[:min(7, len(sha))])
}

// Names are names one after the other, of which there may be none.
func Names(names []string) Phrase {
	if len(names) == 0 {
		return Say("none")
	}
	return Verbatim(strings.Join(names, ", "))
}
