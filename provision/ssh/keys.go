package ssh

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// GenerateKey makes an ed25519 key pair for a user or a host: the private half in OpenSSH's PEM form, the public half as
// one line in authorized_keys form without a newline. comment goes into both.
func GenerateKey(comment string) (private []byte, public string, err error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, "", fmt.Errorf("make an SSH key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(key, comment)
	if err != nil {
		return nil, "", fmt.Errorf("make an SSH key: %w", err)
	}
	line, err := publicLine(pub)
	if err != nil {
		return nil, "", err
	}
	return pem.EncodeToMemory(block), line + " " + comment, nil
}

// Fingerprint is the fingerprint of a private key's public half, as ssh shows it to who connects for the first time: SHA256:….
func Fingerprint(private []byte) (string, error) {
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		return "", fmt.Errorf("read an SSH key: %w", err)
	}
	return ssh.FingerprintSHA256(signer.PublicKey()), nil
}

// PublicLine is the public half of a private key in PEM form, in authorized_keys form without comment and newline.
func PublicLine(private []byte) (string, error) {
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		return "", fmt.Errorf("read an SSH key: %w", err)
	}
	return marshalLine(signer.PublicKey()), nil
}

func publicLine(key ed25519.PublicKey) (string, error) {
	public, err := ssh.NewPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("make an SSH key: %w", err)
	}
	return marshalLine(public), nil
}

func marshalLine(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}
