package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/config/strict"
)

// Flag is a command-line flag that was given.
type Flag struct {
	Key   string // the setting, such as "instance.cpus"
	Name  string // without dashes, such as "cpus"
	Value string
}

// Source is where a value came from.
type Source struct {
	Kind string `json:"kind"` // default, file, env, flag
	// Name is the file with its line, the variable or the flag.
	Name string `json:"name,omitempty"`
}

func (s Source) String() string {
	if s.Name == "" {
		return s.Kind
	}
	return s.Name
}

// Setting is one effective value.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source Source `json:"source"`
}

// Loaded is the settings together with where each came from.
type Loaded struct {
	Config
	// File is the settings file, whether or not it exists.
	File string
	// FileRead says that File exists and was read.
	FileRead bool
	Settings []Setting
}

const envPrefix = "LABCTL_"

// FileVariable names the settings file, as the flag --config does.
const FileVariable = envPrefix + "CONFIG"

// Load reads every source. file is the value of --config, empty where it was not given. The error is *strict.Error where a setting
// cannot be used.
func Load(file string, flags []Flag) (Loaded, error) {
	l := Loaded{}
	explicit := ""
	switch {
	case file != "":
		l.File, explicit = file, "--config"
	case os.Getenv(FileVariable) != "":
		l.File, explicit = os.Getenv(FileVariable), FileVariable
	default:
		dir := os.Getenv("XDG_CONFIG_HOME")
		if dir == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return l, &layout.HomeError{}
			}
			dir = filepath.Join(user, ".config")
		}
		l.File = filepath.Join(dir, "labctl", "config.yaml")
	}
	var err error
	if l.File, err = absolute(l.File, ""); err != nil {
		return l, err
	}

	v := viper.New()
	v.SetConfigType("yaml")
	defaults, err := defaultValues()
	if err != nil {
		return l, err
	}
	sources := map[string]Source{}
	for _, k := range keys() {
		v.SetDefault(k.name, defaults[k.name])
		sources[k.name] = Source{Kind: "default"}
	}

	var problems []strict.Problem
	text, err := os.ReadFile(l.File)
	switch {
	case err == nil:
		lines, bad := strict.Lines(l.File, text, names())
		problems = append(problems, bad...)
		if len(bad) == 0 {
			if err := v.ReadConfig(bytes.NewReader(text)); err != nil {
				return l, fmt.Errorf("read %s: %w", l.File, err)
			}
		}
		l.FileRead = true
		for name, line := range lines {
			sources[name] = Source{Kind: "file", Name: fmt.Sprintf("%s:%d", l.File, line)}
		}
	case errors.Is(err, fs.ErrNotExist) && explicit == "":
		// The default file is optional.
	case errors.Is(err, fs.ErrNotExist):
		return l, &strict.Error{Problems: []strict.Problem{{Source: explicit, What: "there is no file " + l.File, Fix: "name a file that exists, or leave " + explicit + " out"}}}
	default:
		return l, &strict.Error{Problems: []strict.Problem{{Source: l.File, What: "cannot be read: " + err.Error(), Fix: "make it readable, or name another with --config"}}}
	}

	problems = append(problems, unknownVariables(os.Environ())...)
	for _, k := range keys() {
		env := envName(k.name)
		if err := v.BindEnv(k.name, env); err != nil {
			return l, fmt.Errorf("bind %s: %w", env, err)
		}
		if os.Getenv(env) != "" {
			sources[k.name] = Source{Kind: "env", Name: env}
		}
	}
	for _, f := range flags {
		v.Set(f.Key, f.Value)
		sources[f.Key] = Source{Kind: "flag", Name: "--" + f.Name}
	}

	err = v.Unmarshal(&l.Config, func(dc *mapstructure.DecoderConfig) {
		dc.ErrorUnused, dc.WeaklyTypedInput = true, false
		dc.DecodeHook = strict.Decode
	})
	bad := strict.Problems(err, func(key string) string { return sources[key].describe() })
	problems = append(problems, bad...)
	if err != nil && len(bad) == 0 && len(problems) == 0 {
		return l, fmt.Errorf("decode the settings: %w", err)
	}
	problems = append(problems, l.finish(sources, problems)...)
	if len(problems) > 0 {
		return l, &strict.Error{Problems: problems}
	}
	return l, nil
}

// finish makes paths absolute, checks values and fills Settings. Keys that already have a problem are not checked again.
func (l *Loaded) finish(sources map[string]Source, known []strict.Problem) []strict.Problem {
	var problems []strict.Problem
	add := func(k key, what, fix string) {
		problems = append(problems, strict.Problem{Source: sources[k.name].describe(), Key: k.name, What: what, Fix: fix})
	}
	for _, k := range keys() {
		if slices.ContainsFunc(known, func(p strict.Problem) bool { return p.Key == k.name }) {
			continue
		}
		source, field := sources[k.name], k.field(&l.Config)
		if text, ok := field.(*string); ok {
			if k.isPath && *text != "" {
				base := ""
				if source.Kind == "file" {
					base = filepath.Dir(l.File)
				}
				path, err := absolute(*text, base)
				if err != nil {
					add(k, err.Error(), "write the whole path")
					continue
				}
				*text = path
			}
			if len(k.allowed) > 0 && !slices.Contains(k.allowed, *text) {
				add(k, fmt.Sprintf("%q is not one of its values", *text), "use "+strings.Join(k.allowed, ", "))
				continue
			}
		}
		if k.check != nil {
			if what, fix := k.check(&l.Config); what != "" {
				add(k, what, fix)
				continue
			}
		}
		l.Settings = append(l.Settings, Setting{Key: k.name, Value: format(field), Source: source})
	}
	return problems
}

func (s Source) describe() string {
	if s.Kind == "env" {
		return "environment variable " + s.Name
	}
	return s.String()
}

// absolute resolves ~ and what is relative to base, which is the current folder where empty.
func absolute(path, base string) (string, error) {
	if path == "~" || strings.HasPrefix(path, "~/") {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", &layout.HomeError{}
		}
		return filepath.Join(user, path[1:]), nil
	}
	if base != "" && !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	return filepath.Abs(path)
}

// defaultValues are written as a file would write them.
func defaultValues() (map[string]any, error) {
	home, err := layout.Default()
	if err != nil {
		return nil, err
	}
	guestDir, modulesDir := programFolders()
	return map[string]any{
		"stateDir": home.State, "cacheDir": home.Cache, "guestDir": guestDir,
		"accelerator": "auto", "language": "auto", "color": "auto",
		"instance.cpus": 2, "instance.memory": "3GiB", "instance.disk": "12GiB", "instance.port": 0, "instance.isolate": false,
		"image.name": "lab", "image.source": "auto", "image.modulesDir": modulesDir, "image.aptMirror": "", "image.releaseMirror": "", "image.registryMirrors": "", "image.lock": "",
		"timeouts.boot": "10m", "timeouts.verify": "3m", "timeouts.solve": "30m", "timeouts.build": "90m", "timeouts.queue": "1h", "parallel": "0",
	}, nil
}

// programFolders are the folder of this program and, above it, the source tree with nested modules, if any.
func programFolders() (program, modules string) {
	exe, err := os.Executable()
	if err != nil {
		return ".", ""
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	program = filepath.Dir(exe)
	for dir := program; ; dir = filepath.Dir(dir) {
		candidate := filepath.Join(dir, "images", "modules")
		if info, err := os.Stat(candidate); err == nil && info.IsDir() {
			return program, candidate
		}
		if dir == filepath.Dir(dir) {
			return program, ""
		}
	}
}

// Given reports whether a setting was written anywhere, rather than left to its default.
func (l Loaded) Given(key string) bool {
	for _, s := range l.Settings {
		if s.Key == key {
			return s.Source.Kind != "default"
		}
	}
	return false
}

func format(field any) string {
	v := reflect.ValueOf(field).Elem().Interface()
	if d, ok := v.(time.Duration); ok {
		// 10m rather than 10m0s.
		s := d.String()
		if strings.HasSuffix(s, "m0s") {
			s = strings.TrimSuffix(s, "0s")
		}
		if strings.HasSuffix(s, "h0m") {
			s = strings.TrimSuffix(s, "0m")
		}
		return s
	}
	return fmt.Sprint(v)
}
