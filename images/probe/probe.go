// Package probe packs the initial RAM disk whose only program proves that an accelerator can run a kernel.
package probe

import (
	"bytes"
	"fmt"
	"io"

	"github.com/cavaliergopher/cpio"
)

// Word is what the probe prints on its console.
const Word = "labctl-probe-ok"

// Write packs init, a static program, as an initial RAM disk (cpio, newc form, not compressed) with the console's device
// node, without which the kernel would give init no output.
func Write(w io.Writer, init io.Reader) error {
	program, err := io.ReadAll(init)
	if err != nil {
		return fmt.Errorf("read the probe's program: %w", err)
	}
	archive := cpio.NewWriter(w)
	if err := archive.WriteHeader(&cpio.Header{Name: "dev", Mode: cpio.TypeDir | 0o755, Links: 2}); err != nil {
		return fmt.Errorf("pack the probe: %w", err)
	}
	if err := archive.Flush(); err != nil {
		return fmt.Errorf("pack the probe: %w", err)
	}
	if err := writeDevice(w, "dev/console", 5, 1); err != nil {
		return fmt.Errorf("pack the probe: %w", err)
	}
	if err := archive.WriteHeader(&cpio.Header{Name: "init", Mode: cpio.TypeReg | 0o755, Size: int64(len(program))}); err != nil {
		return fmt.Errorf("pack the probe: %w", err)
	}
	if _, err := archive.Write(program); err != nil {
		return fmt.Errorf("pack the probe: %w", err)
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("pack the probe: %w", err)
	}
	return nil
}

// Where a newc header keeps the device numbers: two fields of eight hexadecimal digits.
const rdevAt, rdevEnd = 78, 94

// writeDevice writes the entry of a character device. The library leaves its numbers 0, so they are put in afterwards.
func writeDevice(w io.Writer, name string, major, minor uint32) error {
	var entry bytes.Buffer
	one := cpio.NewWriter(&entry)
	if err := one.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeChar | 0o600, Links: 1}); err != nil {
		return err
	}
	if err := one.Flush(); err != nil {
		return err
	}
	copy(entry.Bytes()[rdevAt:rdevEnd], fmt.Sprintf("%08X%08X", major, minor))
	_, err := w.Write(entry.Bytes())
	return err
}
