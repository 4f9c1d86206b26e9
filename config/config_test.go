package config_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config"
	"github.com/cgoa-labs/labctl/config/size"
	"github.com/cgoa-labs/labctl/config/strict"
)

// clean gives the test a home of its own, without settings from outside, and returns the default settings file.
func clean(t *testing.T) string {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "LABCTL_") || strings.HasPrefix(name, "XDG_") {
			t.Setenv(name, "") // so that it is put back at the end
			require.NoError(t, os.Unsetenv(name))
		}
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	return filepath.Join(home, ".config", "labctl", "config.yaml")
}

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

func source(t *testing.T, l config.Loaded, key string) (value, from string) {
	t.Helper()
	for _, s := range l.Settings {
		if s.Key == key {
			return s.Value, s.Source.String()
		}
	}
	t.Fatalf("no setting %s", key)
	return "", ""
}

func TestDefaults(t *testing.T) {
	file := clean(t)
	l, err := config.Load("", nil)
	require.NoError(t, err)
	require.Equal(t, 2, l.Instance.CPUs)
	require.Equal(t, 3*size.GiB, l.Instance.Memory)
	require.Equal(t, 12, l.Instance.Disk.GiB())
	require.Zero(t, l.Instance.Port)
	require.Equal(t, "lab", l.Image.Name)
	require.Equal(t, 10*time.Minute, l.Timeouts.Boot)
	require.Equal(t, file, l.File)
	require.False(t, l.FileRead)
	require.Len(t, l.Settings, len(config.Docs()))
	for _, s := range l.Settings {
		require.Equal(t, "default", s.Source.String(), s.Key)
	}
	require.Equal(t, filepath.Join(os.Getenv("HOME"), ".local/share/labctl"), l.Home().State)
}

func TestPrecedence(t *testing.T) {
	file := clean(t)
	load := func(flags ...config.Flag) (string, string) {
		l, err := config.Load("", flags)
		require.NoError(t, err)
		return source(t, l, "instance.memory")
	}
	value, from := load()
	require.Equal(t, []string{"3GiB", "default"}, []string{value, from})

	write(t, file, "# mine\ninstance:\n  cpus: 4\n  memory: 4GiB\n")
	value, from = load()
	require.Equal(t, []string{"4GiB", file + ":4"}, []string{value, from})

	t.Setenv("LABCTL_INSTANCE_MEMORY", "5 GiB")
	value, from = load()
	require.Equal(t, []string{"5GiB", "LABCTL_INSTANCE_MEMORY"}, []string{value, from})

	value, from = load(config.Flag{Key: "instance.memory", Name: "memory", Value: "1536MiB"})
	require.Equal(t, []string{"1536MiB", "--memory"}, []string{value, from})

	t.Setenv("LABCTL_INSTANCE_MEMORY", "") // empty counts as not set
	value, from = load()
	require.Equal(t, []string{"4GiB", file + ":4"}, []string{value, from})
}

func TestWhichFile(t *testing.T) {
	clean(t)
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, a, "image: {name: from-a}\n")
	write(t, b, "image: {name: from-b}\n")
	t.Setenv("LABCTL_CONFIG", a)
	l, err := config.Load("", nil)
	require.NoError(t, err)
	require.Equal(t, "from-a", l.Image.Name)
	l, err = config.Load(b, nil)
	require.NoError(t, err)
	require.Equal(t, "from-b", l.Image.Name)

	_, err = config.Load(filepath.Join(dir, "none.yaml"), nil)
	require.EqualError(t, err, "--config: there is no file "+dir+"/none.yaml")
	t.Setenv("LABCTL_CONFIG", filepath.Join(dir, "gone.yaml"))
	_, err = config.Load("", nil)
	require.EqualError(t, err, "LABCTL_CONFIG: there is no file "+dir+"/gone.yaml")

	xdg := t.TempDir()
	t.Setenv("LABCTL_CONFIG", "")
	t.Setenv("XDG_CONFIG_HOME", xdg)
	write(t, filepath.Join(xdg, "labctl", "config.yaml"), "image: {name: from-xdg}\n")
	l, err = config.Load("", nil)
	require.NoError(t, err)
	require.Equal(t, "from-xdg", l.Image.Name)
}

func TestPathsAreRelativeToWhereTheyWereWritten(t *testing.T) {
	file := clean(t)
	write(t, file, "stateDir: state\ncacheDir: ~/cache\n")
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	require.NoError(t, err)
	t.Setenv("LABCTL_GUEST_DIR", "bin")
	l, err := config.Load("", []config.Flag{{Key: "image.modulesDir", Name: "modules-dir", Value: "./src"}})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(filepath.Dir(file), "state"), l.StateDir)
	require.Equal(t, filepath.Join(os.Getenv("HOME"), "cache"), l.CacheDir)
	require.Equal(t, filepath.Join(here, "bin"), l.GuestDir)
	require.Equal(t, filepath.Join(here, "src"), l.Image.ModulesDir)
}

func TestRefused(t *testing.T) {
	tests := []struct {
		name, file, env string
		flags           []config.Flag
		want, hint      string
	}{
		{name: "unknown key", file: "instance:\n  cpu: 3\n", want: "FILE:2: instance.cpu: there is no such setting", hint: "did you mean instance.cpus?"},
		{name: "other case", file: "statedir: /x\n", want: "FILE:1: statedir: there is no such setting", hint: "did you mean stateDir?"},
		{name: "not in its group", file: "\nmemory: 3GiB\n", want: "FILE:2: memory: there is no such setting", hint: "did you mean instance.memory?"},
		{name: "nothing like it", file: "zzzzzz: 1\n", want: "FILE:1: zzzzzz: there is no such setting", hint: "remove it; `labctl config --help` lists the settings"},
		{name: "twice", file: "color: never\nlanguage: en\ncolor: always\n", want: "FILE:3: color: is written twice", hint: "keep one of them"},
		{name: "group as value", file: "instance: 3\n", want: "FILE:1: instance: is a group, not a setting", hint: "write its settings below it, indented"},
		{name: "value as group", file: "color:\n  x: 3\n", want: "FILE:1: color: a group of settings is not a text", hint: "put it in quotes if it is meant so"},
		{name: "not yaml", file: "a: b: c\n", want: "FILE: is not YAML: mapping values are not allowed in this context", hint: "`labctl config --help` has an example"},
		{name: "a list", file: "- 1\n", want: "FILE:1: the file is not a list of `key: value` lines", hint: "`labctl config --help` has an example"},
		{name: "no unit", file: "instance: {memory: 3}\n", want: "FILE:1: instance.memory: 3 has no unit", hint: "write a size such as 3GiB or 512MiB"},
		{name: "thousands", file: "instance: {memory: 3GB}\n", want: `FILE:1: instance.memory: "3GB" counts in thousands`, hint: "write a size such as 3GiB or 512MiB"},
		{name: "fraction", file: "instance: {cpus: 2.5}\n", want: `FILE:1: instance.cpus: "2.5" is not a whole number`, hint: "write a number such as 2"},
		{name: "true is no number", file: "instance: {cpus: true}\n", want: `FILE:1: instance.cpus: "true" is not a whole number`, hint: "write a number such as 2"},
		{name: "number is no text", file: "image: {name: 12}\n", want: `FILE:1: image.name: "12" is not a text`, hint: "put it in quotes if it is meant so"},
		{name: "time without unit", file: "timeouts: {boot: 300}\n", want: "FILE:1: timeouts.boot: 300 has no unit", hint: "write a time such as 90s, 10m or 1h30m"},
		{name: "time", file: "timeouts: {boot: soon}\n", want: `FILE:1: timeouts.boot: "soon" is not a time`, hint: "write a time such as 90s, 10m or 1h30m"},
		{name: "time range", file: "timeouts: {boot: 10ms}\n", want: "FILE:1: timeouts.boot: 10ms is out of range", hint: "use 1s to 24h"},
		{name: "word", env: "LABCTL_ACCELERATOR=hvf", want: `environment variable LABCTL_ACCELERATOR: accelerator: "hvf" is not one of its values`, hint: "use auto, kvm, tcg"},
		{name: "env number", env: "LABCTL_INSTANCE_CPUS=two", want: `environment variable LABCTL_INSTANCE_CPUS: instance.cpus: "two" is not a whole number`, hint: "write a number such as 2"},
		{name: "unknown env", env: "LABCTL_INSTANCE_CPU=2", want: "environment variable LABCTL_INSTANCE_CPU: there is no such setting", hint: "did you mean LABCTL_INSTANCE_CPUS?"},
		{name: "flag", flags: []config.Flag{{Key: "instance.memory", Name: "memory", Value: "lots"}}, want: `--memory: instance.memory: "lots" is not a size`, hint: "write a size such as 3GiB or 512MiB"},
		{name: "too little", flags: []config.Flag{{Key: "instance.memory", Name: "memory", Value: "512MiB"}}, want: "--memory: instance.memory: 512MiB is too little", hint: "use 1GiB or more"},
		{name: "part of a MiB", flags: []config.Flag{{Key: "instance.disk", Name: "disk", Value: "4.5GiB"}}, want: "--disk: instance.disk: 4608MiB is not a whole number of GiB", hint: "use such as 5GiB"},
		{name: "too much", flags: []config.Flag{{Key: "instance.disk", Name: "disk", Value: "99TiB"}}, want: "--disk: instance.disk: 99TiB is too much", hint: "use 16TiB or less"},
		{name: "no CPU", flags: []config.Flag{{Key: "instance.cpus", Name: "cpus", Value: "0"}}, want: "--cpus: instance.cpus: 0 is out of range", hint: "use 1 to 64"},
		{name: "port", flags: []config.Flag{{Key: "instance.port", Name: "port", Value: "80"}}, want: "--port: instance.port: 80 is not a port that can be used", hint: "use 0 for a free port, or 1024 to 65535"},
		{name: "image name", env: "LABCTL_IMAGE_NAME=../x", want: `environment variable LABCTL_IMAGE_NAME: image.name: "../x" cannot be the name of an image`, hint: "use 1 to 32 lower-case letters, digits and hyphens, starting with a letter"},
		{name: "empty folder", file: "stateDir: ''\n", want: "FILE:1: stateDir: is empty", hint: "name a folder, or leave the setting out"},
		{name: "several", file: "color: red\ninstance: {cpus: 0}\n", want: "several settings cannot be used:\n" +
			"  FILE:2: instance.cpus: 0 is out of range (use 1 to 64)\n" +
			"  FILE:1: color: \"red\" is not one of its values (use auto, always, never)", hint: ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			file := clean(t)
			if tc.file != "" {
				write(t, file, tc.file)
			}
			if name, value, ok := strings.Cut(tc.env, "="); ok {
				t.Setenv(name, value)
			}
			_, err := config.Load("", tc.flags)
			var bad *strict.Error
			require.ErrorAs(t, err, &bad)
			require.Equal(t, tc.want, strings.ReplaceAll(err.Error(), file, "FILE"))
			require.Equal(t, tc.hint, bad.Hint())
		})
	}
}

func TestEmptyFilesAndValuesAreTheDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "instance:\n", "instance:\n  cpus:\ncolor: null\n"} {
		file := clean(t)
		write(t, file, text)
		l, err := config.Load("", nil)
		require.NoError(t, err, "%q", text)
		require.Equal(t, 2, l.Instance.CPUs)
		require.Equal(t, "auto", l.Color)
		_, from := source(t, l, "instance.cpus")
		require.Equal(t, "default", from)
	}
}

func TestEverySettingCanBeWrittenEverywhere(t *testing.T) {
	file := clean(t)
	l, err := config.Load("", nil)
	require.NoError(t, err)
	var text strings.Builder
	group := ""
	for _, s := range l.Settings {
		name := s.Key
		if g, rest, nested := strings.Cut(s.Key, "."); nested {
			if g != group {
				text.WriteString(g + ":\n")
				group = g
			}
			name = "  " + rest
		}
		value := s.Value
		if value == "" {
			value = cmp.Or(map[string]string{"image.aptMirror": "http://mirror.example/debian", "image.releaseMirror": "http://mirror.example", "image.registryMirrors": "docker.io=mirror.example/hub"}[s.Key], "/some/where")
		}
		text.WriteString(name + ": " + value + "\n")
	}
	write(t, file, text.String())
	again, err := config.Load("", nil)
	require.NoError(t, err, text.String())
	for _, s := range again.Settings {
		require.Equal(t, "file", s.Source.Kind, s.Key)
	}
	for _, d := range config.Docs() {
		value, _ := source(t, again, d.Key)
		t.Setenv(d.Env, value)
	}
	again, err = config.Load("", nil)
	require.NoError(t, err)
	for _, s := range again.Settings {
		require.Equal(t, "env", s.Source.Kind, s.Key)
	}
}

func TestLabLanguage(t *testing.T) {
	for lang, want := range map[string]string{"ja_JP.UTF-8": "ja", "ko": "ko", "zh_CN": "zh", "de_DE": "en", "C": "en", "": "en"} {
		require.Equal(t, want, config.Config{Language: "auto"}.LabLanguage(lang), lang)
		require.Equal(t, "ko", config.Config{Language: "ko"}.LabLanguage(lang))
	}
}
