package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/client-go/util/keyutil"
)

// certificate is `k3s certificate rotate-ca`: authorities and the service account key from a folder take the place of the cluster's, from the next start
// on. k3s's own keeps the old ones trusted where the new ones are signed by them; this one replaces, which k3s does with --force.
func certificate(args []string) error {
	flags := pflag.NewFlagSet("rotate-ca", pflag.ContinueOnError)
	path := flags.String("path", "", "folder with tls/server-ca.crt, tls/server-ca.key and so on")
	force := flags.Bool("force", false, "take what the old authorities have not signed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() != 1 || flags.Arg(0) != "rotate-ca" || *path == "":
		return errors.New("this stand-in has only: certificate rotate-ca --force --path=DIR")
	case !*force:
		return errors.New("certificate rotate-ca: this stand-in knows no authorities that sign each other: use --force")
	}
	cfg, err := loadConfig(nil)
	if err != nil {
		return err
	}
	from := filepath.Join(*path, "tls")
	var files []string
	for _, ca := range []string{"server-ca", "client-ca", "request-header-ca"} {
		pair, err := tls.LoadX509KeyPair(filepath.Join(from, ca+".crt"), filepath.Join(from, ca+".key"))
		if err != nil {
			return fmt.Errorf("certificate rotate-ca: %s: %w", ca, err)
		}
		if !pair.Leaf.IsCA {
			return fmt.Errorf("certificate rotate-ca: %s is no certificate authority", ca)
		}
		files = append(files, ca+".key", ca+".crt")
	}
	// Last, because who asks whether it was done looks at this one.
	const service = "service.key"
	if _, err := keyutil.PrivateKeyFromFile(filepath.Join(from, service)); err != nil {
		return fmt.Errorf("certificate rotate-ca: %w", err)
	}
	for _, file := range append(files, service) {
		data, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			return err
		}
		to := filepath.Join(cfg.tlsDir(), file)
		if err := os.WriteFile(to+".new", data, 0o600); err != nil {
			return err
		}
		if err := os.Rename(to+".new", to); err != nil {
			return err
		}
	}
	return nil
}
