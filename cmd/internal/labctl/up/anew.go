package up

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/image"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/limits"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
)

// AnewOptions are the arguments of reset --vm.
type AnewOptions struct {
	// Instance is its name, empty for the only one there is.
	Instance string
	// Keep keeps the old one as a stopped instance.
	Keep, Yes bool
	Format    ui.Format
}

// anewDocument is the result of reset --vm as JSON.
type anewDocument struct {
	Schema   string             `json:"schema"`
	Instance provision.Status   `json:"instance"`
	Endpoint provision.Endpoint `json:"endpoint"`
	// Kept is the old one, where it was to be kept.
	Kept    *provision.Status `json:"kept,omitempty"`
	Guest   []check.Result    `json:"guest"`
	Labs    []labs.Report     `json:"labs"`
	Timings []ui.Timing       `json:"timings"`
}

// Anew puts a new instance in the place of one, once the new one is ready and has the labs in it.
func Anew(ctx context.Context, f *factory.Factory, o AnewOptions) error {
	st, err := f.Pick(ctx, o.Instance)
	if err != nil {
		return err
	}
	if st.Power == provision.Broken {
		return &provision.BrokenError{Name: st.Name, Reason: st.Reason}
	}
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	renewer, ok := driver.(provision.Renewer)
	if !ok {
		return &provision.HostError{
			Problem: fmt.Sprintf("the driver %s cannot make instances anew", driver.Info().Name),
			Fix:     fmt.Sprintf("`labctl down %s` and `labctl up %s` do it, without a way back", st.Name, st.Name),
		}
	}
	programs, err := locateAll(f)
	if err != nil {
		return err
	}
	keep, fate := "", "and remove all work in it"
	if o.Keep {
		if keep, err = keptName(ctx, driver, st.Name); err != nil {
			return err
		}
		fate = "and keep the old one, stopped, as " + keep
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	spec, err := anewSpec(ctx, f, driver, st, progress)
	if err != nil {
		return err
	}
	if err := f.Confirm(ctx, o.Yes, fmt.Sprintf("Make instance %s (%s) anew %s?", st.Name, st.Power, fate)); err != nil {
		return err
	}
	may, err := limits.Load(f.Home().Instance(st.Name))
	if err != nil {
		return err
	}
	b := &bringUp{f: f, driver: driver, name: st.Name, before: st, spec: spec, programs: programs, progress: progress}
	err = stage.Run(ctx, b, progress.Sink(""), stage.Stage[bringUp]{
		Name: "make " + st.Name + " anew",
		Run: func(ctx context.Context, b *bringUp, detail func(string)) error {
			return renewer.Renew(ctx, b.spec, keep, func(ctx context.Context, ep provision.Endpoint) error {
				b.endpoint = ep
				if err := may.Save(f.Home().Instance(b.name)); err != nil {
					return err
				}
				return b.settle(ctx)
			}, detail)
		},
	})
	if err != nil {
		return err
	}
	progress.Close()
	return showAnew(ctx, f, b, keep, o.Format)
}

func showAnew(ctx context.Context, f *factory.Factory, b *bringUp, keep string, format ui.Format) error {
	status, err := b.driver.Status(ctx, b.name)
	if err != nil {
		return fmt.Errorf("look at instance %s: %w", b.name, err)
	}
	u := f.UI()
	if format == ui.JSON {
		doc := anewDocument{Schema: ui.Schema("reset-vm"), Instance: status, Endpoint: b.endpoint, Guest: b.guest, Labs: b.reports, Timings: b.progress.Timings()}
		if keep != "" {
			kept, err := b.driver.Status(ctx, keep)
			if err != nil {
				return fmt.Errorf("look at instance %s: %w", keep, err)
			}
			doc.Kept = &kept
		}
		return u.JSON(doc)
	}
	u.Print("%s is new and ready: %s", u.Result.Bold(status.Name), factory.Shape(status))
	if keep != "" {
		u.Print("what it was is kept as %s: `%s start %s` goes on with it, `%s down %s` removes it", keep, program(), keep, program(), keep)
	}
	printLabs(u, b)
	return nil
}

// anewSpec is the shape of an instance, for another from the same image, which is read first. The host is checked for it.
func anewSpec(ctx context.Context, f *factory.Factory, driver provision.Driver, st provision.Status, progress *ui.Progress) (provision.Spec, error) {
	spec := st.Spec
	spec.Cold, spec.SSHPort = false, 0 // a clone where there can be one, on the port it has, which the driver keeps
	img, err := f.Images().Get(ctx, filepath.Base(string(spec.Image)))
	if err != nil {
		return spec, err
	}
	spec.Image, spec.ImageDigest = img.Dir, img.Metadata.Digest
	if err := bigEnough(spec, img.Metadata); err != nil {
		return spec, err
	}
	if err := factory.Preflight("make instance "+spec.Name+" anew", driver.Preflight(ctx, spec)); err != nil {
		return spec, err
	}
	return spec, image.Prove(ctx, f, img, false, progress)
}

// keptName is a free name for what an instance was.
func keptName(ctx context.Context, driver provision.Driver, name string) (string, error) {
	for n := 1; ; n++ {
		end := "-old"
		if n > 1 {
			end += fmt.Sprint(n)
		}
		kept := name[:min(len(name), layout.NameMax-len(end))] + end
		st, err := driver.Status(ctx, kept)
		if err != nil {
			return "", err
		}
		if st.Power == provision.Absent {
			return kept, nil
		}
	}
}
