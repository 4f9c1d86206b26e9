// Package config holds labctl's settings: defaults < file < environment < flags, decoded once and strictly.
// Nothing below the commands sees viper or the environment.
package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/config/size"
)

// Config is every setting, decoded and checked.
type Config struct {
	StateDir    string `mapstructure:"stateDir"`
	CacheDir    string `mapstructure:"cacheDir"`
	GuestDir    string `mapstructure:"guestDir"`
	Accelerator string `mapstructure:"accelerator"`
	Language    string `mapstructure:"language"`
	Color       string `mapstructure:"color"`
	// Parallel is how many instances are worked on at once; 0 means as many as suits the host.
	Parallel int      `mapstructure:"parallel"`
	Instance Instance `mapstructure:"instance"`
	Image    Image    `mapstructure:"image"`
	Timeouts Timeouts `mapstructure:"timeouts"`
}

// Instance is the shape of a new instance.
type Instance struct {
	CPUs   int       `mapstructure:"cpus"`
	Memory size.Size `mapstructure:"memory"`
	Disk   size.Size `mapstructure:"disk"`
	// Port is the loopback port for SSH; 0 takes a free one.
	Port int `mapstructure:"port"`
	// TTL is how long it may run, and Idle how long nobody may do anything in it, before `labctl gc` stops it; 0 is for ever.
	TTL  time.Duration `mapstructure:"ttl"`
	Idle time.Duration `mapstructure:"idle"`
	// Isolate gives a new instance's cluster keys of its own.
	Isolate bool `mapstructure:"isolate"`
}

// Image says which golden image is used and how it is built.
type Image struct {
	Name   string `mapstructure:"name"`
	Source string `mapstructure:"source"`
	// ModulesDir is the folder of nested Go modules that an image's parts are built from; empty where none was found.
	ModulesDir string `mapstructure:"modulesDir"`
	// AptMirror is where Debian packages come from; empty means what this host itself uses.
	AptMirror string `mapstructure:"aptMirror"`
	// ReleaseMirror serves the same paths as upstream's release host and its raw files; empty means upstream.
	ReleaseMirror string `mapstructure:"releaseMirror"`
	// RegistryMirrors are REGISTRY=MIRROR, joined by commas; see Mirrors.
	RegistryMirrors string `mapstructure:"registryMirrors"`
	// Lock is the file that says what a build from releases may fetch; empty for whatever upstream has.
	Lock string `mapstructure:"lock"`
}

// registryName is a registry as images are named after it, mirrorName one with a folder, in which repositories have small letters.
var (
	registryName = regexp.MustCompile(`^[a-z0-9.-]+(:\d{1,5})?$`)
	mirrorName   = regexp.MustCompile(`^(https?://)?[A-Za-z0-9.-]+(:\d{1,5})?(/[a-z0-9._-]+)*/?$`)
)

// Mirrors are the registries' mirrors by registry.
func (i Image) Mirrors() (map[string]string, error) {
	all := map[string]string{}
	for _, pair := range strings.Split(i.RegistryMirrors, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		registry, mirror, ok := strings.Cut(pair, "=")
		switch _, twice := all[registry]; {
		case !ok || !registryName.MatchString(registry) || !mirrorName.MatchString(mirror):
			return nil, fmt.Errorf("%q is no mirror of a registry", pair)
		case registry == "index.docker.io":
			return nil, fmt.Errorf("%q: the registry of images without one is docker.io", pair)
		case twice:
			return nil, fmt.Errorf("%s has two mirrors", registry)
		}
		all[registry] = mirror
	}
	return all, nil
}

// Timeouts bound the long waits.
type Timeouts struct {
	Boot   time.Duration `mapstructure:"boot"`
	Verify time.Duration `mapstructure:"verify"`
	Solve  time.Duration `mapstructure:"solve"`
	Build  time.Duration `mapstructure:"build"`
	Queue  time.Duration `mapstructure:"queue"`
}

// Home is where state and cache live.
func (c Config) Home() layout.Home { return layout.Home{State: c.StateDir, Cache: c.CacheDir} }

// key is one setting: how it is named, what it is for, where it is kept and what may be in it.
type key struct {
	name, doc string
	// field points at the decoded value.
	field func(*Config) any
	// isPath marks a file or folder, made absolute from where it was written.
	isPath bool
	// allowed lists the words that may be used; empty means any.
	allowed []string
	// check returns what is wrong and the fix, or nothing.
	check func(*Config) (what, fix string)
}

// LabLanguage is the language that lab texts are wanted in; lang is what the environment says: LC_ALL, LC_MESSAGES or LANG.
func (c Config) LabLanguage(lang string) string {
	if c.Language != "auto" {
		return c.Language
	}
	if len(lang) >= 2 && slices.Contains(languages, lang[:2]) {
		return lang[:2]
	}
	return "en"
}

func names() []string {
	var all []string
	for _, k := range keys() {
		all = append(all, k.name)
	}
	return all
}

// languages that lab texts are written in.
var languages = []string{"auto", "en", "ja", "ko", "zh"}

func keys() []key {
	return []key{
		{name: "stateDir", isPath: true, doc: "where images, instances and the debug log are kept",
			field: func(c *Config) any { return &c.StateDir }, check: notEmpty(func(c *Config) string { return c.StateDir })},
		{name: "cacheDir", isPath: true, doc: "where build results are kept that can be made again",
			field: func(c *Config) any { return &c.CacheDir }, check: notEmpty(func(c *Config) string { return c.CacheDir })},
		{name: "instance.cpus", doc: "CPUs of a new instance",
			field: func(c *Config) any { return &c.Instance.CPUs }, check: between(func(c *Config) int { return c.Instance.CPUs }, 1, 64)},
		{name: "instance.memory", doc: "memory of a new instance",
			field: func(c *Config) any { return &c.Instance.Memory }, check: sizeFrom(func(c *Config) size.Size { return c.Instance.Memory }, size.GiB, size.MiB)},
		{name: "instance.disk", doc: "disk of a new instance; the file grows as it is written",
			field: func(c *Config) any { return &c.Instance.Disk }, check: sizeFrom(func(c *Config) size.Size { return c.Instance.Disk }, 4*size.GiB, size.GiB)},
		{name: "instance.port", doc: "loopback port for SSH of a new instance; 0 takes a free one",
			field: func(c *Config) any { return &c.Instance.Port }, check: func(c *Config) (string, string) {
				if p := c.Instance.Port; p != 0 && (p < 1024 || p > 65535) {
					return fmt.Sprintf("%d is not a port that can be used", p), "use 0 for a free port, or 1024 to 65535"
				}
				return "", ""
			}},
		{name: "instance.ttl", doc: "how long a new instance may run before gc stops it, keeping memory and work; 0 is for ever",
			field: func(c *Config) any { return &c.Instance.TTL }, check: limit(func(c *Config) time.Duration { return c.Instance.TTL })},
		{name: "instance.idle", doc: "how long nobody may do anything in a new instance before gc stops it, keeping memory and work; 0 is for ever",
			field: func(c *Config) any { return &c.Instance.Idle }, check: limit(func(c *Config) time.Duration { return c.Instance.Idle })},
		{name: "instance.isolate", doc: "re-issue, in a new instance, the cluster's keys that clones of one image share; costs a restart of k3s",
			field: func(c *Config) any { return &c.Instance.Isolate }},
		{name: "parallel", doc: "how many instances are worked on at once; 0 means half as many as this host has processors",
			field: func(c *Config) any { return &c.Parallel }, check: between(func(c *Config) int { return c.Parallel }, 0, 256)},
		{name: "accelerator", allowed: []string{"auto", "kvm", "tcg"}, doc: "auto proves KVM with a tiny boot and else emulates; kvm, tcg",
			field: func(c *Config) any { return &c.Accelerator }},
		{name: "image.name", doc: "golden image that new instances are cloned from",
			field: func(c *Config) any { return &c.Image.Name }, check: func(c *Config) (string, string) {
				if err := layout.CheckName("image", c.Image.Name); err != nil {
					return fmt.Sprintf("%q cannot be the name of an image", c.Image.Name), "use 1 to 32 lower-case letters, digits and hyphens, starting with a letter"
				}
				return "", ""
			}},
		{name: "image.source", allowed: []string{"auto", "release", "modules"}, doc: "where an image's parts come from: auto, release, modules",
			field: func(c *Config) any { return &c.Image.Source }},
		{name: "image.modulesDir", isPath: true, doc: "source tree that parts are built from; found from labctl's own folder upwards",
			field: func(c *Config) any { return &c.Image.ModulesDir }},
		{name: "image.aptMirror", doc: "where Debian packages come from; empty means what this host uses",
			field: func(c *Config) any { return &c.Image.AptMirror }, check: plainURL(func(c *Config) string { return c.Image.AptMirror }, "https://snapshot.example/debian")},
		{name: "image.releaseMirror", doc: "base URL of a mirror of upstream's release files; empty means upstream itself",
			field: func(c *Config) any { return &c.Image.ReleaseMirror }, check: plainURL(func(c *Config) string { return c.Image.ReleaseMirror }, "https://mirror.example/releases")},
		{name: "image.registryMirrors", doc: "mirrors of container registries, such as docker.io=mirror.example/hub,quay.io=mirror.example/quay",
			field: func(c *Config) any { return &c.Image.RegistryMirrors }, check: func(c *Config) (string, string) {
				if _, err := c.Image.Mirrors(); err != nil {
					return err.Error(), "use REGISTRY=MIRROR,…, such as docker.io=mirror.example/hub; http:// before a mirror that has no TLS"
				}
				return "", ""
			}},
		{name: "image.lock", isPath: true, doc: "lock file of a build from releases, which then takes nothing else; `labctl image lock` writes it",
			field: func(c *Config) any { return &c.Image.Lock }},
		{name: "guestDir", isPath: true, doc: "folder of the programs that run in the guest (lab-ci, …); labctl's own folder",
			field: func(c *Config) any { return &c.GuestDir }, check: notEmpty(func(c *Config) string { return c.GuestDir })},
		{name: "timeouts.boot", doc: "longest wait for an instance to become ready",
			field: func(c *Config) any { return &c.Timeouts.Boot }, check: wait(func(c *Config) time.Duration { return c.Timeouts.Boot })},
		{name: "timeouts.verify", doc: "longest wait for one verify",
			field: func(c *Config) any { return &c.Timeouts.Verify }, check: wait(func(c *Config) time.Duration { return c.Timeouts.Verify })},
		{name: "timeouts.solve", doc: "longest wait for one solve or reset",
			field: func(c *Config) any { return &c.Timeouts.Solve }, check: wait(func(c *Config) time.Duration { return c.Timeouts.Solve })},
		{name: "timeouts.build", doc: "longest wait for an image build",
			field: func(c *Config) any { return &c.Timeouts.Build }, check: wait(func(c *Config) time.Duration { return c.Timeouts.Build })},
		{name: "timeouts.queue", doc: "longest wait for room on this host",
			field: func(c *Config) any { return &c.Timeouts.Queue }, check: wait(func(c *Config) time.Duration { return c.Timeouts.Queue })},
		{name: "language", allowed: languages, doc: "language of lab texts, where a lab has them; auto follows LC_ALL or LANG",
			field: func(c *Config) any { return &c.Language }},
		{name: "color", allowed: []string{"auto", "always", "never"}, doc: "colours in the output; auto means on a terminal, unless NO_COLOR is set",
			field: func(c *Config) any { return &c.Color }},
	}
}

// Doc is the name and meaning of one setting.
type Doc struct{ Key, Env, Meaning string }

// Docs lists every setting.
func Docs() []Doc {
	var docs []Doc
	for _, k := range keys() {
		docs = append(docs, Doc{Key: k.name, Env: envName(k.name), Meaning: k.doc})
	}
	return docs
}

// plainURL is empty, or an address on the web that files' paths can be put behind.
func plainURL(get func(*Config) string, example string) func(*Config) (string, string) {
	return func(c *Config) (string, string) {
		u, err := url.Parse(get(c))
		if get(c) == "" || err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") && u.RawQuery == "" && u.Fragment == "" && u.User == nil {
			return "", ""
		}
		return "it is no plain URL", "use such as " + example + ", without a user or a query"
	}
}

func notEmpty(get func(*Config) string) func(*Config) (string, string) {
	return func(c *Config) (string, string) {
		if get(c) == "" {
			return "is empty", "name a folder, or leave the setting out"
		}
		return "", ""
	}
}

// limit is 0, or long enough to be warned in.
func limit(get func(*Config) time.Duration) func(*Config) (string, string) {
	return func(c *Config) (string, string) {
		if d := get(c); d != 0 && d < time.Minute {
			return fmt.Sprintf("%s is too short", d), "use a minute or more, such as 4h, or 0 for ever"
		}
		return "", ""
	}
}

func between(get func(*Config) int, low, high int) func(*Config) (string, string) {
	return func(c *Config) (string, string) {
		if n := get(c); n < low || n > high {
			return fmt.Sprintf("%d is out of range", n), fmt.Sprintf("use %d to %d", low, high)
		}
		return "", ""
	}
}

func sizeFrom(get func(*Config) size.Size, least, unit size.Size) func(*Config) (string, string) {
	return func(c *Config) (string, string) {
		switch n := get(c); {
		case n < least:
			return n.String() + " is too little", "use " + least.String() + " or more"
		case n > 16*size.TiB:
			return n.String() + " is too much", "use " + (16 * size.TiB).String() + " or less"
		case n%unit != 0:
			return n.String() + " is not a whole number of " + unit.String()[1:], "use such as " + (n/unit*unit + unit).String()
		}
		return "", ""
	}
}

func wait(get func(*Config) time.Duration) func(*Config) (string, string) {
	return func(c *Config) (string, string) {
		if d := get(c); d < time.Second || d > 24*time.Hour {
			return d.String() + " is out of range", "use 1s to 24h"
		}
		return "", ""
	}
}
