// Package factory gives labctl's commands what they work with: settings, driver, images, guests. Each is made when a
// command first asks for it, from parts that the caller chose, so that tests choose others.
package factory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/config"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/config/strict"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/source/release"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Guest is a connection to a running guest.
type Guest interface {
	run.Runner
	// Upload puts a local file into the guest, whole or not at all.
	Upload(ctx context.Context, local, remote string, mode fs.FileMode) error
	// Shell runs a login shell; a code other than 0 is a *run.ExitError.
	Shell(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, tty bool) error
	Close() error
}

// Images is the store of golden images.
type Images interface {
	// List also tells what is wrong with folders that are no image; that is not fatal.
	List(ctx context.Context) ([]images.Image, []error)
	// Get returns *images.NotFoundError where there is none.
	Get(ctx context.Context, name string) (images.Image, error)
	// Verify reads the whole image and returns *images.DamagedError where it is not what it was.
	Verify(ctx context.Context, img images.Image, progress func(detail string)) error
	// Prove is Verify that reads only what has changed since it was read; known says that there was nothing to read.
	Prove(ctx context.Context, img images.Image, progress func(detail string)) (known bool, err error)
	// Check is Verify by names and sizes alone.
	Check(img images.Image) error
	Remove(ctx context.Context, name string) error
}

// Build is what an image is to be built from.
type Build struct {
	Name  string
	Force bool
	// NoFreeze leaves out the frozen guest beside the image.
	NoFreeze bool
	Sink     stage.Sink
}

// Builder builds golden images, from the settings that it was made with.
type Builder interface {
	// Preflight checks, before any work and changing nothing, that the host can build.
	Preflight(ctx context.Context, b Build) []check.Result
	Build(ctx context.Context, b Build) (images.Image, error)
	// Current says whether Build would leave the image as it is.
	Current(ctx context.Context, b Build) (bool, error)
	// Cloud makes a disk for other hypervisors in the folder dir, in several formats.
	Cloud(ctx context.Context, b Build, dir string) ([]images.File, error)
	// Leftovers names what killed builds of the image left, and Sweep removes it.
	Leftovers(b Build) ([]provision.Leftover, error)
	Sweep(ctx context.Context, b Build, leftovers []provision.Leftover) error
	// Outdated says why a present image is not what a build would make now; empty where it still is.
	Outdated(ctx context.Context, img images.Image) (why string, err error)
}

// Upstream tells what upstream's releases have now.
type Upstream interface {
	// Resolve finds out, down to the byte, what upstream has under the pinned versions, and Newer what it has released since.
	Resolve(ctx context.Context, debianMirror string, progress func(detail string)) (*release.Lock, error)
	Newer(ctx context.Context) (map[string]string, error)
}

// Fleet keeps several instances; see package stack. do is called for several instances at once, and may be called for what is done
// already. The outcomes hold what became of each instance, nil where all went well; they are nil where nothing was begun.
type Fleet interface {
	Up(ctx context.Context, specs []provision.Spec, do func(ctx context.Context, name string) error) (map[string]error, error)
	Down(ctx context.Context, names []string, do func(ctx context.Context, name string) error) (map[string]error, error)
}

// Parts are the layers below. No part is made before a command needs it.
type Parts struct {
	// Driver may tell what is worth knowing and no error through say.
	Driver   func(c config.Loaded, say func(line string)) (provision.Driver, error)
	Images   func(config.Config) Images
	Builder  func(c config.Loaded, say func(line string)) (Builder, error)
	Upstream func(c config.Loaded) (Upstream, error)
	Dial     func(ctx context.Context, ep provision.Endpoint) (Guest, error)
	OpenSSH  func(ep provision.Endpoint, knownHosts string, tty bool, command []string) ([]string, error)
	// Fleet makes the stack that keeps a fleet.
	Fleet func(ctx context.Context, c config.Loaded, parallel int, say, note, log func(line string)) (Fleet, error)
	// GuestChecks are the guest contract, to be asked once; deep adds what takes long.
	GuestChecks func(guest run.Runner, deep bool) []check.Check
	// Isolate gives a guest's cluster keys of its own; done says that it had them. The platform has to get ready anew.
	Isolate func(ctx context.Context, guest run.Runner, progress func(detail string)) (done bool, err error)
	// HalfIsolated says that Isolate was interrupted in a guest: its platform gets ready when Isolate has gone on, and not before.
	HalfIsolated func(ctx context.Context, guest run.Runner) (bool, error)
}

// Factory makes what commands need.
type Factory struct {
	cli.Streams
	Parts Parts

	file   string // the value of --config
	loaded *config.Loaded
	ui     *ui.UI
	driver provision.Driver
	log    *slog.Logger
	logTo  *cli.LogFile
}

// New makes a factory.
func New(s cli.Streams, parts Parts) *Factory { return &Factory{Streams: s, Parts: parts} }

// keyAnnotation ties a flag to its setting.
const keyAnnotation = "labctl.dev/setting"

// RootFlags adds the flags that every command has.
func (f *Factory) RootFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&f.file, "config", "", "settings `FILE` (default ~/.config/labctl/config.yaml)")
	setting(flags, "stateDir", "state-dir", "DIR", "where images and instances are kept")
	setting(flags, "color", "color", "WHEN", "colours: auto, always or never")
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions([]cobra.Completion{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp))
	_ = root.MarkPersistentFlagDirname("state-dir")
}

// Setting adds a flag to cmd that overrides a setting.
func Setting(cmd *cobra.Command, key, name, value, usage string) {
	setting(cmd.Flags(), key, name, value, usage)
}

// Switch ties a flag that is given without a value to a setting that is true or false.
func Switch(cmd *cobra.Command, key, name, usage string) {
	setting(cmd.Flags(), key, name, "bool", usage)
	cmd.Flags().Lookup(name).NoOptDefVal = "true"
}

// LanguageFlag adds --lang, the language of lab texts.
func LanguageFlag(cmd *cobra.Command) {
	Setting(cmd, "language", "lang", "LANG", "language of lab texts: en, ja, ko or zh; auto follows LC_ALL or LANG")
	_ = cmd.RegisterFlagCompletionFunc("lang", cobra.FixedCompletions([]cobra.Completion{"auto", "en", "ja", "ko", "zh"}, cobra.ShellCompDirectiveNoFileComp))
}

func setting(flags *pflag.FlagSet, key, name, value, usage string) {
	flag := flags.VarPF(&settingValue{kind: value}, name, "", usage)
	flag.Annotations = map[string][]string{keyAnnotation: {key}}
}

// settingValue is a flag's text; what it may be is for package config to say.
type settingValue struct{ text, kind string }

func (v *settingValue) String() string        { return v.text }
func (v *settingValue) Set(text string) error { v.text = text; return nil }
func (v *settingValue) Type() string          { return v.kind }

// Load reads the settings, with cmd's flags over them. It is run before every command; what it did is kept.
func (f *Factory) Load(cmd *cobra.Command) error {
	if f.loaded != nil {
		return nil
	}
	var given []config.Flag
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if key := flag.Annotations[keyAnnotation]; len(key) == 1 {
			given = append(given, config.Flag{Key: key[0], Name: flag.Name, Value: flag.Value.String()})
		}
	})
	loaded, err := config.Load(f.file, given)
	if err != nil {
		return err
	}
	f.loaded = &loaded
	f.logTo = &cli.LogFile{Path: loaded.Home().Log(), Max: 4 << 20}
	f.log = f.logTo.Logger()
	return nil
}

// Settings are the effective settings. Load must have run.
func (f *Factory) Settings() config.Loaded {
	if f.loaded == nil {
		panic("factory: Settings before Load")
	}
	return *f.loaded
}

// Home is where state and cache live.
func (f *Factory) Home() layout.Home { return f.Settings().Home() }

// CheckState refuses a state folder that cannot be looked into; one that is not there yet will be made.
func (f *Factory) CheckState() error {
	path := f.Home().State
	_, err := os.ReadDir(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &cli.UsageError{
		Msg: fmt.Sprintf("the state folder %s cannot be used: %v", path, errors.Unwrap(err)),
		Fix: "choose another with --state-dir, LABCTL_STATE_DIR or stateDir in the settings",
	}
}

// UI is how results and progress are written.
func (f *Factory) UI() *ui.UI {
	if f.ui == nil {
		f.ui = ui.New(f.Streams, f.Settings().Color)
	}
	return f.ui
}

// Log is the debug log and its file; before Load it drops its records.
func (f *Factory) Log() (*slog.Logger, string) {
	if f.log == nil {
		return slog.New(slog.DiscardHandler), ""
	}
	return f.log, f.logTo.Path
}

// Close ends what the factory opened.
func (f *Factory) Close() error {
	if f.logTo == nil {
		return nil
	}
	return f.logTo.Close()
}

// Driver is what runs instances.
func (f *Factory) Driver() (provision.Driver, error) {
	if f.driver == nil {
		driver, err := f.Parts.Driver(f.Settings(), f.say)
		if err != nil {
			return nil, err
		}
		f.driver = driver
	}
	return f.driver, nil
}

func (f *Factory) say(line string) { f.UI().Note("%s", line) }

// Images is the store of golden images.
func (f *Factory) Images() Images { return f.Parts.Images(f.Settings().Config) }

// Upstream asks the hosts of upstream's releases.
func (f *Factory) Upstream() (Upstream, error) { return f.Parts.Upstream(f.Settings()) }

// Builder builds golden images.
func (f *Factory) Builder() (Builder, error) { return f.Parts.Builder(f.Settings(), f.say) }

// Classify gives the exit codes of errors that the layers below raise: 2 for a name or setting that is not there, else 3.
func Classify(err error) (int, bool) {
	var settings *strict.Error
	var name *layout.NameError
	var instance *provision.NotFoundError
	var conflict *provision.ConflictError
	var spec *provision.SpecError
	var image *images.NotFoundError
	var home *layout.HomeError
	switch {
	case errors.As(err, &home), errors.As(err, &settings), errors.As(err, &name), errors.As(err, &instance), errors.As(err, &conflict), errors.As(err, &spec), errors.As(err, &image):
		return cli.BadUsage, true
	}
	return 0, false
}

// Language is the one that lab texts are wanted in.
func (f *Factory) Language() string {
	return f.Settings().LabLanguage(cmp.Or(f.Env("LC_ALL"), f.Env("LC_MESSAGES"), f.Env("LANG")))
}
