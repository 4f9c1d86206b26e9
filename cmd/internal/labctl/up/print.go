package up

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/cmd/internal/ui/verdict"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
)

func printUp(u *ui.UI, st provision.Status, b *bringUp) {
	u.Print("%s is ready: %s", u.Result.Bold(st.Name), factory.Shape(st))
	printLabs(u, b)
	u.Print("\nnext:")
	next := ui.Table{Indent: "  "}
	self := program()
	next.Row(self+" ssh "+st.Name, "log in and work")
	for _, p := range b.programs {
		next.Row(self+" verify --lab "+p.Lab+" -i "+st.Name, "check the work")
	}
	next.Row(self+" stop "+st.Name, "stop, keeping the work")
	next.Row(self+" down "+st.Name, "remove it with all work")
	next.Write(u.Out)
}

func printLabs(u *ui.UI, b *bringUp) {
	for i, report := range b.reports {
		printSteps(u, b.programs[i].Lab, report, b.f.Language())
	}
}

// program is how labctl can be called from here: by its name where the path leads to this very program, else as it was called.
func program() string {
	const name = "labctl"
	self, err := os.Executable()
	if err != nil {
		return name
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return os.Args[0]
	}
	a, errA := os.Stat(self)
	b, errB := os.Stat(found)
	if errA == nil && errB == nil && !os.SameFile(a, b) {
		return os.Args[0]
	}
	return name
}

// printSteps lists a lab's steps by what is left to do; why a step is not done is for verify to say.
func printSteps(u *ui.UI, lab string, report labs.Report, language string) {
	words := verdict.In(language)
	table := ui.Table{Indent: "  "}
	for _, s := range report.Steps {
		word, paint := words.NotDone, u.Result.Dim
		switch s.State {
		case check.Passed:
			word, paint = words.Done, u.Result.Good
		case check.Error:
			word, paint = words.Unasked, u.Result.Warn
		}
		table.Cells(ui.Cell{Text: fmt.Sprintf("%2d", s.Step)}, ui.Cell{Text: word, Paint: paint}, ui.Cell{Text: s.Title})
	}
	heading := u.Result.Bold("lab " + lab)
	if known, err := labrun.Find(lab); err == nil {
		if said, err := known.Text(language); err == nil {
			heading += ", " + said.Title
		}
	}
	u.Print("\n%s: %s", heading, words.Progress(report.Passed(), len(report.Steps)))
	table.Write(u.Out)
	if report.Error != "" {
		u.Print("  %s", u.Result.Warn(report.Error))
	}
}
