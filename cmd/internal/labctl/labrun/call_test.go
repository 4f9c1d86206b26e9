package labrun_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xssh "golang.org/x/crypto/ssh"

	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/ssh"
	"github.com/cgoa-labs/labctl/provision/ssh/sshtest"
)

const passed = `echo '{"schema":"labctl.dev/lab/v1","lab":"ci","action":"'$1'","state":"passed"}'`

// bench is a guest behind a real SSH connection, and a lab program for it.
type bench struct {
	t      *testing.T
	client *ssh.Client
	root   string
	sent   []string // what was done over the connection
}

func (b *bench) Run(ctx context.Context, cmd run.Cmd) (run.Result, error) {
	b.sent = append(b.sent, "run")
	return b.client.Run(ctx, cmd)
}

func (b *bench) Upload(ctx context.Context, local, remote string, mode fs.FileMode) error {
	b.sent = append(b.sent, "upload")
	return b.client.Upload(ctx, local, remote, mode)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	hostKey, hostLine, err := ssh.GenerateKey("host")
	require.NoError(t, err)
	userKey, _, err := ssh.GenerateKey("user")
	require.NoError(t, err)
	keyFile := filepath.Join(t.TempDir(), "id")
	require.NoError(t, os.WriteFile(keyFile, userKey, 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, err := sshtest.Start(listener, hostKey, func(xssh.PublicKey) bool { return true })
	require.NoError(t, err)
	t.Cleanup(server.Close)
	client, err := ssh.Dial(t.Context(), provision.Endpoint{Host: "127.0.0.1", Port: server.Port(), User: "root", KeyFile: keyFile, HostKey: hostLine},
		ssh.Options{Grace: 200 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/local/bin"), 0o755))
	return &bench{t: t, client: client, root: root}
}

// program is a lab program with this body.
func (b *bench) program(body string) labrun.Program {
	b.t.Helper()
	dir := b.t.TempDir()
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, "lab-ci"), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	p, err := labrun.Locate(dir, labrun.Known{ID: "ci", Steps: 8})
	require.NoError(b.t, err)
	return p.Below(b.root)
}

func (b *bench) take() []string {
	sent := b.sent
	b.sent = nil
	return sent
}

func TestProgramIsPushedOnceAndThenRunInOneSession(t *testing.T) {
	b := newBench(t)
	first := b.program(passed)
	var said []string
	report, err := first.Run(t.Context(), b, labrun.Call{Action: "verify", Timeout: time.Minute}, func(s string) { said = append(said, s) })
	require.NoError(t, err)
	require.Equal(t, check.Passed, report.State)
	require.Equal(t, []string{"run", "upload", "run"}, b.take())
	require.Equal(t, []string{"push lab-ci", ""}, said)

	_, err = first.Run(t.Context(), b, labrun.Call{Action: "reset", Timeout: time.Minute}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"run"}, b.take())

	// Another version takes its place.
	second := b.program(passed + "\n# newer")
	_, err = second.Run(t.Context(), b, labrun.Call{Action: "verify", Timeout: time.Minute}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"run", "upload", "run"}, b.take())
	files, err := os.ReadDir(filepath.Join(b.root, "usr/local/lib/labctl"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Equal(t, "lab-ci-"+second.SHA256, files[0].Name())
	target, err := os.Readlink(filepath.Join(b.root, "usr/local/bin/lab-ci"))
	require.NoError(t, err)
	require.Equal(t, files[0].Name(), filepath.Base(target))
}

func TestTheLinkIsNoReasonToFail(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.RemoveAll(filepath.Join(b.root, "usr/local/bin")))
	_, err := b.program(passed).Run(t.Context(), b, labrun.Call{Action: "verify", Timeout: time.Minute}, nil)
	require.NoError(t, err)
}

func TestWhatTheProgramIsAsked(t *testing.T) {
	b := newBench(t)
	args := filepath.Join(t.TempDir(), "args")
	p := b.program(`echo "$*" "$LABCTL_LANGUAGE" >> ` + args + "\necho working >&2\n" + passed)
	for want, call := range map[string]labrun.Call{
		"verify -o json":                                   {Action: "verify"},
		"verify -o json --step 3 ja":                       {Action: "verify", Step: 3, Language: "ja"},
		"solve -o json --to 4":                             {Action: "solve", To: 4},
		"verify -o json --wait --timeout 1m30s":            {Action: "verify", Wait: 90 * time.Second},
		"verify -o json --step 1 --wait --timeout 1m0s en": {Action: "verify", Step: 1, Wait: time.Minute, Language: "en"},
	} {
		require.NoError(t, os.RemoveAll(args))
		var log bytes.Buffer
		call.Timeout, call.Log = time.Minute, &log
		_, err := p.Run(t.Context(), b, call, nil)
		require.NoError(t, err)
		got, err := os.ReadFile(args)
		require.NoError(t, err)
		require.Equal(t, want, strings.TrimSpace(string(got)))
		require.Equal(t, "working\n", log.String())
	}
}

func TestVerdictsAndTrouble(t *testing.T) {
	const answer = `{"schema":"labctl.dev/lab/v1","lab":"ci","action":"verify","state":"%s"}`
	for name, tc := range map[string]struct {
		body  string
		state check.State
		want  string
	}{
		"failed is a verdict":     {body: `echo '` + strings.Replace(answer, "%s", "failed", 1) + `'; exit 1`, state: check.Failed},
		"error is a verdict":      {body: `echo '` + strings.Replace(answer, "%s", "error", 1) + `'; exit 3`, state: check.Error},
		"no verdict":              {body: `echo "lab-ci: no space left on device" >&2; exit 3`, want: "verify lab ci: lab-ci ended with exit code 3 and no verdict: lab-ci: no space left on device"},
		"killed":                  {body: `kill -9 $$`, want: "verify lab ci: lab-ci ended with exit code 137 and no verdict"},
		"not JSON":                {body: `echo hello`, want: "verify lab ci: its answer cannot be read (invalid character 'h' looking for beginning of value): hello"},
		"other schema":            {body: `echo '{"schema":"labctl.dev/lab/v9","lab":"ci","action":"verify","state":"passed"}'`, want: `verify lab ci: its answer is of another schema: "labctl.dev/lab/v9" instead of "labctl.dev/lab/v1"`},
		"other action":            {body: `echo '{"schema":"labctl.dev/lab/v1","lab":"ci","action":"solve","state":"passed"}'`, want: `verify lab ci: its answer is of another action: "solve" instead of "verify"`},
		"no state":                {body: `echo '{"schema":"labctl.dev/lab/v1","lab":"ci","action":"verify"}'`, want: "verify lab ci: its answer has no state"},
		"no such state":           {body: `echo '{"schema":"labctl.dev/lab/v1","lab":"ci","action":"verify","state":"=1+1"}'`, want: `verify lab ci: its answer has a state that is none: "=1+1"`},
		"no such state of a step": {body: `echo '{"schema":"labctl.dev/lab/v1","lab":"ci","action":"verify","state":"passed","steps":[{"step":1,"state":"great"}]}'`, want: `verify lab ci: its answer on step 1 cannot be: "great"`},
		"a step twice":            {body: `echo '{"schema":"labctl.dev/lab/v1","lab":"ci","action":"verify","state":"passed","steps":[{"step":1,"state":"passed"},{"step":1,"state":"passed"}]}'`, want: `verify lab ci: its answer on step 1 cannot be: "passed"`},
		"not for this processor":  {body: "exec /dev/null", want: "verify lab ci: lab-ci ended with exit code 126 and no verdict"},
		"longer than it may take": {body: `sleep 60`, want: "verify lab ci: no answer within 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			p := b.program(tc.body)
			report, err := p.Run(t.Context(), b, labrun.Call{Action: "verify", Timeout: time.Second}, nil)
			if tc.want == "" {
				require.NoError(t, err)
				require.Equal(t, tc.state, report.State)
				return
			}
			var trouble *labrun.Error
			require.ErrorAs(t, err, &trouble)
			require.True(t, strings.HasPrefix(err.Error(), tc.want), "got %q", err.Error())
			require.Empty(t, report.State, "trouble is no verdict")
		})
	}
}

func TestInterruptEndsTheProgramAndIsTheReason(t *testing.T) {
	b := newBench(t)
	started := filepath.Join(t.TempDir(), "started")
	p := b.program("trap 'echo ended > " + started + "; exit 1' TERM\necho begun > " + started + "\nwhile :; do sleep 0.1; done")
	why := errors.New("stopped by Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	is := func(word string) check.Check {
		return check.Check{Title: word, Ask: func(context.Context) (check.Outcome, error) {
			text, err := os.ReadFile(started)
			if strings.TrimSpace(string(text)) == word {
				return check.Pass(word), nil
			}
			return check.NotYet(word, string(text), ""), err
		}}
	}
	wait := check.Wait{Timeout: 30 * time.Second, First: 20 * time.Millisecond, Most: 100 * time.Millisecond}
	watched := make(chan error, 1)
	go func() {
		_, err := wait.For(t.Context(), is("begun"))
		cancel(why)
		watched <- err
	}()
	_, err := p.Run(ctx, b, labrun.Call{Action: "verify", Timeout: time.Minute}, nil)
	require.NoError(t, <-watched)
	require.ErrorIs(t, err, why)
	_, err = wait.For(t.Context(), is("ended"))
	require.NoError(t, err)
}
