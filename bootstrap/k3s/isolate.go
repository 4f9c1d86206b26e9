package k3s

import (
	"context"
	_ "embed"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision/run"
)

//go:embed isolate.sh
var isolateScript string

// lagTime is how long namespaces may take to be told of a new authority.
const lagTime = 5 * time.Minute

// Isolate gives a ready guest a cluster authority, a service account key and Argo CD secrets of its own, in the place of those that all clones of an image
// share. It restarts k3s and makes every pod anew: afterwards the platform has to get ready once more. done says that it had all happened before.
// Interrupted, it goes on where it stopped when it is called again. Tokens and kubeconfigs that were handed out before are void.
func Isolate(ctx context.Context, guest run.Runner, progress func(detail string)) (done bool, err error) {
	progress("new keys, and a restart of k3s")
	out, err := isolateStep(ctx, guest, "keys")
	if err != nil || out == "done" {
		return out == "done", err
	}
	progress("waiting for every namespace to have the new authority")
	_, err = check.Wait{Timeout: lagTime, Attempt: time.Minute, First: 2 * time.Second, Most: 8 * time.Second}.For(ctx, check.Check{
		ID: "authority", Title: "cluster authority", Ask: func(ctx context.Context) (check.Outcome, error) {
			lagging, err := isolateStep(ctx, guest, "lagging")
			if err != nil {
				return check.Outcome{}, err
			}
			if lagging != "" {
				return check.NotYet("the new one in every namespace", "the old one in "+strings.Join(strings.Fields(lagging), ", "), "see `journalctl -u k3s` in the guest"), nil
			}
			return check.Pass("the new one in every namespace"), nil
		},
	})
	if err != nil {
		return false, err
	}
	progress("Argo CD's secrets, and every pod anew")
	_, err = isolateStep(ctx, guest, "pods")
	return false, err
}

// HalfIsolated says that Isolate was interrupted in this guest. Its pods then have tokens that are worth nothing, so that its platform need not get ready
// by itself any more; Isolate goes on all the same.
func HalfIsolated(ctx context.Context, guest run.Runner) (bool, error) {
	out, err := isolateStep(ctx, guest, "halfway")
	return out == "halfway", err
}

func isolateStep(ctx context.Context, guest run.Runner, name string) (string, error) {
	res, err := guest.Run(ctx, run.Cmd{Argv: []string{"sh", "-s", "--", name}, Stdin: strings.NewReader(isolateScript)})
	return strings.TrimSpace(string(res.Stdout)), err
}
