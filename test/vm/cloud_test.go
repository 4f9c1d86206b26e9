//go:build vm

package vm

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/bootstrap/guest"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/container"
	"github.com/cgoa-labs/labctl/images/versions"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	programs "github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/ssh"
)

// TestCloud boots a cloud disk as another hypervisor would: by UEFI, in a network of another address, with an identity from cloud-init.
func TestCloud(t *testing.T) {
	dir := filepath.Join(state, "cloud")
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var doc struct{ Files []images.File }
	require.NoError(t, json.Unmarshal([]byte(must(t, 2*boot, "image", "build", "--target", "cloud", "--out", dir, "-o", "json").stdout), &doc))
	require.Len(t, doc.Files, 3)
	out, err := exec.Command("sh", "-c", "cd "+dir+" && sha256sum --check --strict SHA256SUMS").CombinedOutput()
	require.NoError(t, err, string(out))
	qcow := filepath.Join(dir, "lab.qcow2")
	containerDisk(t, filepath.Join(dir, "lab-containerdisk.tar"), qcow)

	m := bootCloud(t, dir, qcow)
	pins, err := versions.Load()
	require.NoError(t, err)
	opts := guest.Options{Images: pins.Images.Lab}
	r, err := check.Wait{Timeout: boot, Attempt: 3 * time.Minute, First: 2 * time.Second, Most: 10 * time.Second}.For(t.Context(), guest.Ready(m, opts))
	require.NoError(t, err, r.Got)
	for command, want := range map[string]string{
		"hostname":                                 "learner-7",
		"cat /etc/hostname":                        "learner-7",
		"findmnt -no SOURCE /":                     "/dev/vda2",
		"ip -4 -br addr show dev node0":            "10.0.2.15/32",
		"ip -4 -br addr show dev eth0":             "192.168.77.",
		"test -d /sys/firmware/efi && echo":        "",
		"cloud-init status --wait":                 "status: done",
		"systemctl is-active labctl-agent || true": "inactive",
	} {
		res, err := m.Run(t.Context(), programs.Cmd{Argv: []string{"sh", "-c", command}})
		require.NoError(t, err, command)
		require.Contains(t, string(res.Stdout), want, command)
	}
	res, err := m.Run(t.Context(), programs.Cmd{Argv: []string{"sh", "-c", "df -B1 --output=size / | tail -1"}})
	require.NoError(t, err)
	var size int64
	_, err = fmt.Sscan(string(res.Stdout), &size)
	require.NoError(t, err)
	require.Greater(t, size, int64(7<<30), "the root grows with its disk")
}

// containerDisk wants an OCI archive whose one image holds the disk where KubeVirt looks for it.
func containerDisk(t *testing.T, archive, qcow string) {
	t.Helper()
	all, err := container.Read(archive, t.TempDir())
	require.NoError(t, err)
	require.Len(t, all, 1)
	for _, img := range all {
		layers, err := img.Layers()
		require.NoError(t, err)
		require.Len(t, layers, 1)
		content, err := layers[0].Uncompressed()
		require.NoError(t, err)
		defer content.Close()
		for reader := tar.NewReader(content); ; {
			header, err := reader.Next()
			require.NoError(t, err)
			if header.Name != "disk/lab.qcow2" {
				continue
			}
			require.Equal(t, 107, header.Uid)
			sum := sha256.New()
			_, err = io.Copy(sum, reader)
			require.NoError(t, err)
			want, err := os.ReadFile(filepath.Join(filepath.Dir(qcow), "SHA256SUMS"))
			require.NoError(t, err)
			require.Contains(t, string(want), hex.EncodeToString(sum.Sum(nil))+"  lab.qcow2")
			return
		}
	}
}

// bootCloud runs a copy of the disk under OVMF, with a NoCloud seed, and logs in.
func bootCloud(t *testing.T, dir, qcow string) programs.Runner {
	t.Helper()
	login, public, err := ssh.GenerateKey("learner")
	require.NoError(t, err)
	host, hostPublic, err := ssh.GenerateKey("host")
	require.NoError(t, err)
	seed, vars, overlay, key := filepath.Join(dir, "seed.img"), filepath.Join(dir, "vars.fd"), filepath.Join(dir, "overlay.qcow2"), filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(key, login, 0o600))
	user := fmt.Sprintf("#cloud-config\nssh_authorized_keys:\n  - %s\nssh_keys:\n  ed25519_private: |\n    %s\n  ed25519_public: %s\n",
		strings.TrimSpace(public), strings.ReplaceAll(strings.TrimSpace(string(host)), "\n", "\n    "), strings.TrimSpace(hostPublic))
	writeSeed(t, seed, map[string]string{"/meta-data": "instance-id: seven\nlocal-hostname: learner-7\n", "/user-data": user})
	code, given, err := firmware()
	require.NoError(t, err)
	data, err := os.ReadFile(given)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(vars, data, 0o600))
	output, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", "-b", qcow, "-F", "qcow2", overlay, "8G").CombinedOutput()
	require.NoError(t, err, string(output))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	console := filepath.Join(dir, "console.log")
	// Emulated: a /dev/kvm that is there need not work, which only labctl's own probe finds out.
	cmd := exec.Command("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "3072", "-display", "none", "-nodefaults", "-no-user-config",
		"-drive", "if=pflash,format=raw,unit=0,readonly=on,file="+code, "-drive", "if=pflash,format=raw,unit=1,file="+vars,
		"-drive", "if=virtio,format=qcow2,file="+overlay, "-drive", "if=virtio,format=raw,readonly=on,file="+seed,
		"-netdev", fmt.Sprintf("user,id=n,restrict=on,net=192.168.77.0/24,hostfwd=tcp:127.0.0.1:%d-:22", port), "-device", "virtio-net-pci,netdev=n",
		"-object", "rng-random,filename=/dev/urandom,id=r", "-device", "virtio-rng-pci,rng=r", "-serial", "file:"+console)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	ctx, ended := context.WithCancelCause(t.Context())
	gone := make(chan struct{})
	go func() {
		ended(fmt.Errorf("QEMU has ended: %w", cmp.Or(cmd.Wait(), io.EOF)))
		close(gone)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-gone
		if t.Failed() {
			said, _ := os.ReadFile(console)
			t.Log(lastLines(string(said), 60))
		}
	})
	ep := provision.Endpoint{Host: "127.0.0.1", Port: port, User: "root", KeyFile: key, HostKey: strings.TrimSpace(hostPublic)}
	var client *ssh.Lasting
	_, err = check.Wait{Timeout: boot, Attempt: 30 * time.Second}.For(ctx, check.Check{ID: "ssh", Title: "SSH", Ask: func(ctx context.Context) (check.Outcome, error) {
		client, err = ssh.DialLasting(ctx, ep, ssh.Options{})
		return check.Pass("logged in"), err
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// writeSeed makes a volume as cloud-init's NoCloud looks for it.
func writeSeed(t *testing.T, file string, files map[string]string) {
	t.Helper()
	d, err := diskfs.Create(file, 40<<20, diskfs.SectorSize512)
	require.NoError(t, err)
	fat, err := d.CreateFilesystem(disk.FilesystemSpec{Partition: 0, FSType: filesystem.TypeFat32, VolumeLabel: "CIDATA"})
	require.NoError(t, err)
	for name, text := range files {
		f, err := fat.OpenFile(name, os.O_CREATE|os.O_RDWR)
		require.NoError(t, err)
		_, err = f.Write([]byte(text))
		require.NoError(t, errors.Join(err, f.Close()))
	}
	require.NoError(t, errors.Join(fat.Close(), d.Close()))
}

// firmware are OVMF's code and variables, where Debian's package puts them.
func firmware() (code, vars string, err error) {
	for _, suffix := range []string{"_4M.fd", ".fd"} {
		code, vars = "/usr/share/OVMF/OVMF_CODE"+suffix, "/usr/share/OVMF/OVMF_VARS"+suffix
		if _, err = os.Stat(code); err == nil {
			return code, vars, nil
		}
	}
	return "", "", fmt.Errorf("UEFI firmware is not installed: apt-get install ovmf: %w", err)
}
