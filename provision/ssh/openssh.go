package ssh

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
)

// OpenSSH writes ep's host key to knownHosts, a file that belongs to the instance, and returns the argv with which the
// system's own ssh client logs in to ep, trusting that file alone and reading no other configuration. Without a command it
// is a login shell; tty asks for a terminal also for a command.
func OpenSSH(ep provision.Endpoint, knownHosts string, tty bool, command []string) ([]string, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(ep.HostKey))
	if err != nil {
		return nil, fmt.Errorf("read the pinned host key: %w", err)
	}
	address := knownhosts.Normalize(fmt.Sprintf("%s:%d", ep.Host, ep.Port))
	pinned := knownhosts.Line([]string{address}, key) + "\n"
	if err := renameio.WriteFile(knownHosts, []byte(pinned), 0o600, renameio.WithTempDir(filepath.Dir(knownHosts))); err != nil {
		return nil, fmt.Errorf("pin the host key: %w", err)
	}
	argv := []string{"ssh", "-F", "none"}
	for _, option := range []string{
		"IdentityFile=" + optionPath(ep.KeyFile), "IdentitiesOnly=yes", "IdentityAgent=none",
		"PreferredAuthentications=publickey", "BatchMode=yes",
		"UserKnownHostsFile=" + optionPath(knownHosts), "GlobalKnownHostsFile=none", "StrictHostKeyChecking=yes",
		"UpdateHostKeys=no", "HostKeyAlgorithms=" + key.Type(),
		"ConnectTimeout=60", "ServerAliveInterval=15", "ServerAliveCountMax=4",
	} {
		argv = append(argv, "-o", option)
	}
	if tty && len(command) > 0 {
		argv = append(argv, "-t")
	}
	argv = append(argv, "-p", strconv.Itoa(ep.Port), "-l", ep.User, "--", ep.Host)
	if len(command) > 0 {
		// The client joins words with spaces and hands them to a shell.
		argv = append(argv, run.Quote(command))
	}
	return argv, nil
}

// optionPath writes a path so that ssh's option parser gives it back: spaces quoted, no token expanded.
func optionPath(path string) string {
	return `"` + strings.NewReplacer(`%`, `%%`, `"`, `\"`, `\`, `\\`).Replace(path) + `"`
}
