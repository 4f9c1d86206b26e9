package strict

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"go.yaml.in/yaml/v3"

	"github.com/cgoa-labs/labctl/config/size"
)

// valueError is a value that cannot be what its setting needs.
type valueError struct{ what, fix string }

func (e *valueError) Error() string { return e.what }

// Decode is a mapstructure hook. It turns what a file, a variable or a flag can hold into a setting's type, and refuses what would change its meaning.
func Decode(_, to reflect.Type, data any) (any, error) {
	text, isText := data.(string)
	switch to {
	case reflect.TypeFor[size.Size]():
		if !isText {
			return nil, &valueError{fmt.Sprintf("%v has no unit", data), "write a size such as 3GiB or 512MiB"}
		}
		n, err := size.Parse(text)
		if err != nil {
			return nil, &valueError{err.Error(), "write a size such as 3GiB or 512MiB"}
		}
		return n, nil
	case reflect.TypeFor[time.Duration]():
		const fix = "write a time such as 90s, 10m or 1h30m"
		if !isText {
			return nil, &valueError{fmt.Sprintf("%v has no unit", data), fix}
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, &valueError{fmt.Sprintf("%q is not a time", text), fix}
		}
		return d, nil
	}
	switch to.Kind() {
	case reflect.Int:
		if n, ok := data.(int); ok {
			return n, nil
		}
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if !isText || err != nil {
			return nil, &valueError{fmt.Sprintf("%s is not a whole number", quoted(data)), "write a number such as 2"}
		}
		return n, nil
	case reflect.Bool:
		if b, ok := data.(bool); ok {
			return b, nil
		}
		if b, err := strconv.ParseBool(strings.TrimSpace(text)); isText && err == nil {
			return b, nil
		}
		return nil, &valueError{fmt.Sprintf("%s is neither true nor false", quoted(data)), "write true or false"}
	case reflect.String:
		if !isText {
			return nil, &valueError{fmt.Sprintf("%s is not a text", quoted(data)), "put it in quotes if it is meant so"}
		}
	case reflect.Struct:
		if _, ok := data.(map[string]any); !ok {
			return nil, &valueError{fmt.Sprintf("%s is not a group of settings", quoted(data)), "write its settings below it, indented"}
		}
	}
	return data, nil
}

func quoted(data any) string {
	switch data.(type) {
	case map[string]any:
		return "a group of settings"
	case []any:
		return "a list"
	}
	return fmt.Sprintf("%q", fmt.Sprint(data))
}

// Problems turns mapstructure's errors into problems, each with its key; source says where a key was written.
func Problems(err error, source func(key string) string) []Problem {
	if err == nil {
		return nil
	}
	var problems []Problem
	var walk func(error)
	walk = func(err error) {
		var de *mapstructure.DecodeError
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range many.Unwrap() {
				walk(one)
			}
			return
		}
		if named, ok := err.(*mapstructure.DecodeError); ok {
			de = named
			inner := de.Unwrap()
			var nested *mapstructure.DecodeError
			var value *valueError
			if errors.As(inner, &nested) {
				walk(inner)
				return
			}
			p := Problem{Key: de.Name(), Source: source(de.Name()), What: inner.Error(), Fix: "`labctl config --help` lists the settings"}
			if errors.As(inner, &value) {
				p.What, p.Fix = value.what, value.fix
			}
			problems = append(problems, p)
			return
		}
		if inner := errors.Unwrap(err); inner != nil {
			walk(inner)
		}
	}
	walk(err)
	return problems
}

// Lines finds the line of each setting in a YAML file, and what is wrong with its keys. known are the settings' names, such
// as instance.cpus.
func Lines(file string, text []byte, known []string) (map[string]int, []Problem) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, []Problem{{Source: file, What: "is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: "), Fix: "`labctl config --help` has an example"}}
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return nil, nil // empty, or comments only
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, []Problem{{Source: fmt.Sprintf("%s:%d", file, root.Line), What: "the file is not a list of `key: value` lines", Fix: "`labctl config --help` has an example"}}
	}
	names, groups := map[string]bool{}, map[string]bool{}
	var candidates []string
	for _, name := range known {
		names[name] = true
		candidates = append(candidates, name)
		if group, _, nested := strings.Cut(name, "."); nested {
			groups[group] = true
		}
	}
	for g := range groups {
		candidates = append(candidates, g)
	}
	lines := map[string]int{}
	var problems []Problem
	var walk func(prefix string, node *yaml.Node)
	walk = func(prefix string, node *yaml.Node) {
		for i := 0; i+1 < len(node.Content); i += 2 {
			name, value := prefix+node.Content[i].Value, node.Content[i+1]
			source := fmt.Sprintf("%s:%d", file, node.Content[i].Line)
			_, seen := lines[name]
			switch {
			case seen:
				problems = append(problems, Problem{Source: source, Key: name, What: "is written twice", Fix: "keep one of them"})
			case groups[name] && value.Kind == yaml.MappingNode:
				walk(name+".", value)
			case groups[name] && value.Tag != "!!null":
				problems = append(problems, Problem{Source: source, Key: name, What: "is a group, not a setting", Fix: "write its settings below it, indented"})
			case names[name]:
				if value.Tag != "!!null" {
					lines[name] = node.Content[i].Line
				}
			case !groups[name]:
				fix := "remove it; `labctl config --help` lists the settings"
				if near := nearestKey(name, candidates); near != "" {
					fix = "did you mean " + near + "?"
				}
				problems = append(problems, Problem{Source: source, Key: name, What: "there is no such setting", Fix: fix})
			}
		}
	}
	walk("", root)
	return lines, problems
}

// nearestKey also finds a key that was written in the wrong group or without one.
func nearestKey(name string, candidates []string) string {
	if near := Nearest(name, candidates); near != "" {
		return near
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	for _, c := range candidates {
		if strings.EqualFold(c[strings.LastIndexByte(c, '.')+1:], last) {
			return c
		}
	}
	return ""
}
