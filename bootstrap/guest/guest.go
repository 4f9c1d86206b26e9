// Package guest states what every guest offers to labs, whatever its image was made from, as one list of checks.
package guest

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision/run"
)

//go:embed collect.sh
var collectScript string

// Options say how closely the contract is looked at.
type Options struct {
	// Images are the container images that must be present.
	Images []string
	// Deep adds the questions that take many seconds under emulation: the argocd command line and `k3s kubectl`.
	Deep bool
	// Now is the host's time source; time.Now where nil.
	Now func() time.Time
}

// clockTolerance is how far the guest's clock may be from the host's.
const clockTolerance = 5 * time.Second

// workloads are the contract's Deployments and StatefulSets.
var workloads = []string{
	"kube-system/coredns", "gitsrv/gitd",
	"argocd/argocd-application-controller", "argocd/argocd-repo-server", "argocd/argocd-applicationset-controller", "argocd/argocd-redis",
}

// Checks are the guest contract. All of them share one round trip, made by the first that is asked, so a list serves once:
// make a new one to look again.
func Checks(guest run.Runner, opts Options) []check.Check {
	now := opts.Now
	if now == nil {
		now = time.Now
	}
	f := &facts{runner: guest, deep: opts.Deep, now: now}
	checks := []check.Check{
		f.check("api", "API server", "answers /readyz", func(s section) check.Outcome { return expect(s, "ok", "see `journalctl -u k3s` in the guest") }, "ready"),
		f.check("openapi", "API description", "served", func(s section) check.Outcome {
			if n, err := strconv.Atoi(s.out); err != nil || n < 1000 {
				return check.NotYet("", s.words(), "")
			}
			return check.Pass(s.out + " bytes")
		}, "openapi"),
		f.check("node", "node", "node lab is Ready", nodeReady, "nodes"),
	}
	for _, name := range workloads {
		checks = append(checks, f.check("workload-"+strings.ReplaceAll(name, "/", "-"), name, "ready", workloadReady(name), "workloads"))
	}
	checks = append(checks,
		f.check("project", "AppProject default", "exists", func(s section) check.Outcome {
			return expect(s, "default", "an Application cannot leave Unknown without it")
		}, "project"),
		f.check("gitd", "git daemon", "a new bare repository is visible at once", func(s section) check.Outcome { return expect(s, "visible", "look at the pod in namespace gitsrv") }, "gitd"),
		f.check("git-service", "Service gitd", "port 9418", func(s section) check.Outcome { return expect(s, strconv.Itoa(bootstrap.GitPort), "") }, "service"),
		f.check("kubectl", "kubectl", "answers", func(s section) check.Outcome { return expect(s, "ok", "") }, "kubectl"),
		f.check("user", "user", "root", func(s section) check.Outcome { return expect(s, "0", "") }, "user"),
		f.check("commands", "commands", "git, kubectl, argocd and k3s are on the path", present, "commands"),
		f.check("login", "login shell", "KUBECONFIG names the cluster", func(s section) check.Outcome { return expect(s, bootstrap.Kubeconfig, "") }, "login"),
		f.check("kubeconfig", "k3s.yaml", "mode 600, owner root", func(s section) check.Outcome { return expect(s, "600 root", "") }, "kubeconfig"),
		f.check("git-config", "git configuration", "a name, an e-mail and init.defaultBranch=main", func(s section) check.Outcome {
			return expect(s, bootstrap.DefaultGitName+"\n"+bootstrap.DefaultGitEmail+"\nmain", "")
		}, "gitconfig"),
		f.check("clock", "clock", "within "+clockTolerance.String()+" of the host", f.clock, "clock"),
		f.check("images", "container images", strings.Join(opts.Images, ", ")+" present", imagesPresent(opts.Images), "images"),
	)
	if opts.Deep {
		checks = append(checks,
			f.check("k3s-kubectl", "k3s kubectl", "answers", present, "k3skubectl"),
			f.check("argocd-core", "argocd --core", "lists applications", func(s section) check.Outcome {
				if strings.HasSuffix(s.out, "answered") {
					return check.Pass("answers")
				}
				return check.NotYet("an answer", s.words(), "")
			}, "argocli"),
		)
	}
	return checks
}

// Ready asks the whole contract anew each time; it passes when every check does. For use with check.Wait.
func Ready(guest run.Runner, opts Options) check.Check {
	return check.Check{ID: "platform", Title: "platform", Ask: func(ctx context.Context) (check.Outcome, error) {
		var missing []string
		for _, c := range Checks(guest, opts) {
			if r := c.Run(ctx); r.State != check.Passed {
				missing = append(missing, fmt.Sprintf("%s: %s", r.Title, r.Got))
			}
			if ctx.Err() != nil {
				break
			}
		}
		if len(missing) == 0 {
			return check.Pass("ready"), nil
		}
		got := missing[0]
		if more := len(missing) - 1; more > 0 {
			got += fmt.Sprintf(" (and %d more)", more)
		}
		return check.NotYet("every part of the guest contract", got, ""), nil
	}}
}

// section is the output of one command of the script.
type section struct {
	out string
	// failed is the command's exit code and standard error, where it failed.
	failed string
}

func (s section) words() string {
	if s.failed != "" {
		return s.failed
	}
	if s.out == "" {
		return "nothing"
	}
	return run.Tail([]byte(s.out), 120)
}

type facts struct {
	runner run.Runner
	deep   bool
	now    func() time.Time

	once     sync.Once
	sections map[string]section
	asked    time.Time
	err      error
}

func (f *facts) collect(ctx context.Context) {
	argv := []string{"sh", "-s", "--"}
	if f.deep {
		argv = append(argv, "deep")
	}
	start := f.now()
	res, err := f.runner.Run(ctx, run.Cmd{Argv: argv, Stdin: strings.NewReader(collectScript)})
	if err != nil {
		f.err = fmt.Errorf("ask the guest: %w", err)
		return
	}
	// The clock is read somewhere in between.
	f.asked = start.Add(f.now().Sub(start) / 2)
	f.sections = parse(string(res.Stdout))
}

func parse(output string) map[string]section {
	sections := map[string]section{}
	name := ""
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if rest, ok := strings.CutPrefix(line, "@@ "); ok {
			name = rest
			sections[name] = section{}
			continue
		}
		s := sections[name]
		if rest, ok := strings.CutPrefix(line, "@! "); ok {
			s.failed = "exit code " + strings.TrimSpace(rest)
		} else {
			s.out = strings.TrimPrefix(s.out+"\n"+line, "\n")
		}
		sections[name] = s
	}
	for name, s := range sections {
		s.out = strings.TrimSpace(s.out)
		sections[name] = s
	}
	return sections
}

func (f *facts) check(id, title, wanted string, judge func(section) check.Outcome, name string) check.Check {
	return check.Check{ID: id, Title: title, Ask: func(ctx context.Context) (check.Outcome, error) {
		f.once.Do(func() { f.collect(ctx) })
		if f.err != nil {
			return check.Outcome{}, f.err
		}
		s, ok := f.sections[name]
		if _, waiting := f.sections["waiting"]; !ok && waiting {
			return check.NotYet(wanted, "not asked, since something before it is not ready", ""), nil
		}
		if !ok {
			return check.Outcome{}, fmt.Errorf("the guest gave no answer about %s", title)
		}
		out := judge(s)
		out.Wanted = wanted
		return out, nil
	}}
}

func expect(s section, want, hint string) check.Outcome {
	// A command may say more before what is asked for.
	if s.failed == "" && (s.out == want || strings.HasSuffix(s.out, "\n"+want)) {
		return check.Pass(run.Tail([]byte(want), 100))
	}
	return check.NotYet(want, s.words(), hint)
}

func present(s section) check.Outcome {
	if s.failed != "" {
		return check.Fail("", s.words(), "the image lacks it: build it again")
	}
	return check.Pass("present")
}

func (f *facts) clock(s section) check.Outcome {
	seconds, err := strconv.ParseInt(s.out, 10, 64)
	if err != nil {
		return check.NotYet("", s.words(), "")
	}
	off := time.Unix(seconds, 0).Sub(f.asked).Round(time.Second)
	if off.Abs() > clockTolerance+f.now().Sub(f.asked) {
		return check.Fail("", fmt.Sprintf("off by %s", off), "stop and start the instance: its clock is set at power-on")
	}
	return check.Pass("off by " + off.String())
}

func nodeReady(s section) check.Outcome {
	var nodes struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
	}
	if s.failed != "" || json.Unmarshal([]byte(s.out), &nodes) != nil {
		return check.NotYet("", s.words(), "")
	}
	for _, node := range nodes.Items {
		if node.Metadata.Name != bootstrap.NodeName {
			continue
		}
		for _, c := range node.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				return check.Pass("Ready")
			} else if c.Type == "Ready" {
				return check.NotYet("", c.Message, "")
			}
		}
	}
	return check.NotYet("", fmt.Sprintf("%d nodes, none of them %s and Ready", len(nodes.Items), bootstrap.NodeName), "")
}

func workloadReady(name string) func(section) check.Outcome {
	return func(s section) check.Outcome {
		var list struct {
			Items []struct {
				Metadata struct {
					Name, Namespace string
					Generation      int64
				}
				Spec   struct{ Replicas int }
				Status struct {
					ObservedGeneration             int64
					ReadyReplicas, UpdatedReplicas int
				}
			}
		}
		if s.failed != "" || json.Unmarshal([]byte(s.out), &list) != nil {
			return check.NotYet("", s.words(), "")
		}
		for _, w := range list.Items {
			if w.Metadata.Namespace+"/"+w.Metadata.Name != name {
				continue
			}
			got := fmt.Sprintf("%d of %d replicas ready", w.Status.ReadyReplicas, w.Spec.Replicas)
			if w.Spec.Replicas > 0 && w.Status.ReadyReplicas == w.Spec.Replicas && w.Status.ObservedGeneration >= w.Metadata.Generation {
				return check.Pass(got)
			}
			return check.NotYet("", got, "")
		}
		return check.NotYet("", "not there", "")
	}
}

func imagesPresent(want []string) func(section) check.Outcome {
	return func(s section) check.Outcome {
		var list struct {
			Images []struct {
				RepoTags []string `json:"repoTags"`
			}
		}
		if s.failed != "" || json.Unmarshal([]byte(s.out), &list) != nil {
			return check.NotYet("", s.words(), "")
		}
		var missing []string
		for _, name := range want {
			found := false
			for _, img := range list.Images {
				for _, tag := range img.RepoTags {
					found = found || tag == name || strings.HasSuffix(tag, "/"+name)
				}
			}
			if !found {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return check.Fail("", "missing: "+strings.Join(missing, ", "), "the image lacks them: build it again")
		}
		return check.Pass("present")
	}
}
