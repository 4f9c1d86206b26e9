// Whole-program runs of labctl: the real command tree, settings, output and exit codes, over a driver that only pretends to
// run instances and a guest that is a folder.
package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/labs/check"
)

var update = flag.Bool("update", false, "write what the program prints into the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"labctl": func() { os.Exit(labctl.Run(context.Background(), cli.OS(), os.Args[1:], fakeParts())) },
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("LABCTL_GUEST_DIR", filepath.Join(env.WorkDir, "bin"))
			env.Setenv("LANG", "C")
			dir := filepath.Join(env.WorkDir, "bin")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			return placeLabs(dir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":      scriptCode,
			"json":      scriptJSON,
			"interrupt": scriptInterrupt,
			"replace":   scriptReplace,
		},
	})
}

// placeLabs puts every lab's program into a folder.
func placeLabs(dir string) error {
	for _, lab := range labrun.All() {
		if err := os.WriteFile(filepath.Join(dir, "lab-"+lab.ID), []byte(labProgram), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// labProgram stands for the labs' programs: it answers with the file ANSWER, or with all steps failed, and with ANSWER_CODE.
const labProgram = `#!/bin/sh
lab=${0##*/lab-} lab=${lab%%-*}
echo "$lab $*" >> "$WORK/lab-calls"
[ -z "$LAB_SAYS" ] || echo "$LAB_SAYS" >&2
case "$ANSWER" in */slow) sleep 60;; esac
if [ -n "$ANSWER" ]; then cat "$ANSWER"; exit ${ANSWER_CODE:-0}; fi
cat <<END
{"schema":"labctl.dev/lab/v1","lab":"$lab","action":"$1","state":"failed","millis":1500,"steps":[
{"step":1,"title":"Build a delivery pipeline","state":"failed","millis":900,"checks":[
 {"id":"bare","title":"the bare repository","state":"failed","wanted":"/srv/bare/shop.git","got":"nothing there","hint":"where does gitd look?","millis":900}]},
{"step":2,"title":"Break it on purpose","state":"skipped","millis":0}]}
END
exit 1
`

// scriptCode runs a command and wants this exit code: code N COMMAND...
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil {
		ts.Fatalf("usage: code N COMMAND...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, not %d", got, want)
	}
}

// scriptReplace replaces a text in a file, which must hold it: replace OLD NEW FILE
func scriptReplace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace OLD NEW FILE")
	}
	text := ts.ReadFile(args[2])
	if !strings.Contains(text, args[0]) {
		ts.Fatalf("%s does not hold %q", args[2], args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(strings.ReplaceAll(text, args[0], args[1])), 0o600))
}

// scriptJSON wants a value at a path of the JSON document on stdout: json a.0.b WANT
func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	var value any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &value); err != nil {
		ts.Fatalf("stdout is not JSON: %v", err)
	}
	for _, name := range strings.Split(args[0], ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			if n, err := strconv.Atoi(name); err == nil && n < len(v) {
				value = v[n]
			} else if name == "length" {
				value = len(v)
			} else {
				value = nil
			}
		default:
			value = nil
		}
	}
	if got := fmt.Sprint(value); (got == args[1]) == neg {
		ts.Fatalf("%s is %q", args[0], got)
	}
}

// scriptInterrupt runs a command, sends it SIGINT when FILE is there, and wants exit code 130: interrupt FILE COMMAND...
func scriptInterrupt(ts *testscript.TestScript, _ bool, args []string) {
	path, err := exec.LookPath(args[1])
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if _, statErr := os.Stat(filepath.Join(dir, args[1])); statErr == nil && err != nil {
			path, err = filepath.Join(dir, args[1]), nil
		}
	}
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args[2:]...)
	for _, name := range []string{"HOME", "PATH", "WORK", "LANG", "LABCTL_GUEST_DIR", "FAKE"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	ts.Check(cmd.Start())
	_, err = check.Wait{Timeout: 30 * time.Second, First: 10 * time.Millisecond}.For(ctx, check.Check{
		Title: args[0] + " is there",
		Ask: func(context.Context) (check.Outcome, error) {
			if _, err := os.Stat(ts.MkAbs(args[0])); err != nil {
				return check.NotYet("", err.Error(), ""), nil
			}
			return check.Pass(""), nil
		},
	})
	ts.Check(err)
	ts.Check(cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait()
	ts.Logf("[stderr]\n%s", stderr.String())
	if code := cmd.ProcessState.ExitCode(); code != cli.Interrupted {
		ts.Fatalf("exit code %d, not %d", code, cli.Interrupted)
	}
	ts.Check(os.WriteFile(ts.MkAbs("interrupted-stderr"), stderr.Bytes(), 0o600))
}
