// Package identity gives a guest its identity: clock, entropy, names and SSH keys. labctl sends them over a virtio serial
// port, one JSON document a line, and the guest's agent applies them and answers. Golden images hold no identity at all, so
// that no two instances share one.
package identity

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
)

// PortName is the virtio serial port's name, on both sides.
const PortName = "org.labctl.agent.0"

// MaxLine is the longest request or answer in bytes; longer lines are skipped.
const MaxLine = 256 << 10

// EntropyBytes is how much entropy a request should carry.
const EntropyBytes = 64

// Op is what a request asks for.
type Op string

// The operations. Each may be repeated with the same effect.
const (
	Ping        Op = "ping"        // answer, and nothing else
	Personalise Op = "personalise" // take on the identity in the request, then serve SSH
	PowerOff    Op = "poweroff"    // power the guest off in good order
)

// Request is what labctl sends.
type Request struct {
	Op Op `json:"op"`
	// Nonce comes back in the answer; it must be new for each request, so that an answer is never taken for another's.
	Nonce string `json:"nonce"`
	// Now is the host's time as Unix time in ns.
	Now int64 `json:"now,omitempty"`
	// Entropy is random data for the guest's kernel (base64 in JSON).
	Entropy []byte `json:"entropy,omitempty"`
	// Hostname is a DNS label.
	Hostname string `json:"hostname,omitempty"`
	// MachineID is 32 lower-case hexadecimal digits.
	MachineID string `json:"machineID,omitempty"`
	// HostKey is the SSH host key: an ed25519 private key in PEM form.
	HostKey string `json:"hostKey,omitempty"`
	// AuthorizedKeys is the content of root's authorized_keys file.
	AuthorizedKeys string `json:"authorizedKeys,omitempty"`
}

// Answer is what the guest sends back.
type Answer struct {
	Nonce string `json:"nonce"`
	OK    bool   `json:"ok"`
	// Error says why OK is false.
	Error    string `json:"error,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	// ClockSteppedMillis is how far the guest's clock was set forward; 0 when it was right, or ahead of the host's.
	ClockSteppedMillis int64 `json:"clockSteppedMillis"`
	// BootID changes with each boot of the guest's kernel.
	BootID string `json:"bootID,omitempty"`
}

var hostnamePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// validate refuses a request whose values must not reach the guest's files.
func (r Request) validate() error {
	if !hostnamePattern.MatchString(r.Hostname) {
		return fmt.Errorf("host name %q is no DNS label", r.Hostname)
	}
	if id, err := hex.DecodeString(r.MachineID); err != nil || len(id) != 16 {
		return fmt.Errorf("machine id %q is not 32 hexadecimal digits", r.MachineID)
	}
	if r.Now <= 0 {
		return errors.New("the host's time is missing")
	}
	if len(r.Entropy) == 0 {
		return errors.New("entropy is missing")
	}
	if r.AuthorizedKeys == "" {
		return errors.New("authorized keys are missing")
	}
	return nil
}
