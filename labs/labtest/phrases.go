package labtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Phrases are what the code in the folders has its checks say, by text.Say, and where. It wants every phrase to be a constant with as many
// verbs as it gets arguments, and none that goes around the lab's language by check.Pass, check.Fail and check.NotYet.
func Phrases(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	said := map[string]string{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, folder)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, file, nil, 0)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !says(call, parsed.Name.Name) {
					return true
				}
				where := set.Position(call.Pos()).String()
				phrase, constant := literal(call.Args[0])
				require.True(t, constant, "%s: what is said is no string in quotes, so that no translation can be found for it", where)
				require.Len(t, verbs.FindAllString(strings.ReplaceAll(phrase, "%%", ""), -1), len(call.Args)-1, "%s: verbs and arguments", where)
				said[phrase] = where
				return true
			})
		}
	}
	return said
}

// SharedPhrases are the folders whose phrases all labs share; labs is the way to the folder labs.
func SharedPhrases(labs string) []string {
	var folders []string
	for _, folder := range []string{"argo", "engine", "judge", "prompt", "text"} {
		folders = append(folders, filepath.Join(labs, folder))
	}
	return folders
}

// says reports whether a call is text.Say's, also in package text itself.
func says(call *ast.CallExpr, in string) bool {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		return ok && x.Name == "text" && f.Sel.Name == "Say"
	case *ast.Ident:
		return in == "text" && f.Name == "Say"
	}
	return false
}

func literal(e ast.Expr) (string, bool) {
	basic, ok := e.(*ast.BasicLit)
	if !ok || basic.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(basic.Value)
	return s, err == nil
}

// verbs are where arguments go into a phrase, with a number where a language wants them in another order.
var verbs = regexp.MustCompile(`%(\[\d+\])?[-+#0-9.]*[a-z]`)

// Translated wants a translation for every phrase that has words, with the same arguments and the same names in it.
func Translated(t *testing.T, language string, said, translations map[string]string) {
	t.Helper()
	for phrase, where := range said {
		if !strings.ContainsFunc(verbs.ReplaceAllString(phrase, ""), isLetter) {
			continue
		}
		in := translations[phrase]
		if in == "" {
			t.Errorf("%s: no words for %q: add it under phrases in text/%s.yaml (where it is said: %s)", language, phrase, language, where)
			continue
		}
		require.Equal(t, arguments(phrase), arguments(in), "%s: %q: arguments", language, phrase)
		require.Equal(t, identifiers(verbs.ReplaceAllString(phrase, " ")), identifiers(verbs.ReplaceAllString(in, " ")), "%s: %q: names", language, phrase)
	}
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

// arguments are the verbs by the number of the argument that each takes.
func arguments(phrase string) map[int]string {
	all, next := map[int]string{}, 1
	for _, verb := range verbs.FindAllString(strings.ReplaceAll(phrase, "%%", ""), -1) {
		if number, rest, numbered := strings.Cut(strings.TrimPrefix(verb, "%["), "]"); numbered {
			next, _ = strconv.Atoi(number)
			verb = "%" + rest
		}
		all[next] = verb
		next++
	}
	return all
}
