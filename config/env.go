package config

import (
	"slices"
	"strings"
	"unicode"

	"github.com/cgoa-labs/labctl/config/strict"
)

// envName is LABCTL_IMAGE_MODULES_DIR for image.modulesDir.
func envName(key string) string {
	var b strings.Builder
	b.WriteString(envPrefix)
	lower := false
	for _, r := range key {
		if unicode.IsUpper(r) && lower {
			b.WriteByte('_')
		}
		lower = unicode.IsLower(r)
		if r == '.' {
			r = '_'
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}

func unknownVariables(environ []string) []strict.Problem {
	known := []string{FileVariable}
	for _, k := range keys() {
		known = append(known, envName(k.name))
	}
	var problems []strict.Problem
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if value == "" || !strings.HasPrefix(name, envPrefix) || slices.Contains(known, name) {
			continue
		}
		fix := "unset it; `labctl config --help` lists the settings"
		if near := strict.Nearest(name, known); near != "" {
			fix = "did you mean " + near + "?"
		}
		problems = append(problems, strict.Problem{Source: "environment variable " + name, What: "there is no such setting", Fix: fix})
	}
	return problems
}
