package ssh

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/cgoa-labs/labctl/provision/run"
)

// DigestError says that a file did not arrive as it was sent; the file in the guest is as it was before.
type DigestError struct{ Remote, Want string }

func (e *DigestError) Error() string {
	return fmt.Sprintf("upload to %s: what arrived does not have sha256 %s", e.Remote, e.Want)
}

// uploadScript takes the remote path, the octal mode and the sha256, and the gzipped file on its input. The file is in
// place, whole and with its mode, or not at all.
const uploadScript = `set -eu
dir=$(dirname -- "$1")
mkdir -p -- "$dir"
tmp=$(mktemp -- "$dir/.labctl-upload.XXXXXX")
trap 'rm -f -- "$tmp"' EXIT
trap 'exit 143' HUP INT TERM
gzip -dc > "$tmp"
got=$(sha256sum < "$tmp")
[ "${got%% *}" = "$3" ] || exit 65
chmod -- "$2" "$tmp"
mv -fT -- "$tmp" "$1"
`

// digestMismatch is uploadScript's exit code for a wrong digest (EX_DATAERR).
const digestMismatch = 65

// Upload puts a file into the guest in one session, compressed on the way, checked, and atomically. It returns *DigestError
// when something else arrived than was sent.
func (c *Client) Upload(ctx context.Context, local, remote string, mode fs.FileMode) error {
	digest, err := fileDigest(local)
	if err != nil {
		return err
	}
	return c.upload(ctx, local, remote, mode, digest)
}

// Push is Upload for a file that the guest may have already: it is sent only when the digest or the file's mode differs.
// It says whether it was sent.
func (c *Client) Push(ctx context.Context, local, remote string, mode fs.FileMode) (sent bool, err error) {
	digest, err := fileDigest(local)
	if err != nil {
		return false, err
	}
	res, err := c.Run(ctx, run.Cmd{Argv: []string{"sh", "-c", `sha256sum < "$1" && stat -c %a -- "$1"`, "sh", remote}})
	if _, answered := run.ExitCode(err); err != nil && !answered {
		return false, err
	}
	if have := strings.Fields(string(res.Stdout)); err == nil && len(have) == 3 && have[0] == digest && have[2] == octal(mode) {
		return false, nil
	}
	return true, c.upload(ctx, local, remote, mode, digest)
}

func (c *Client) upload(ctx context.Context, local, remote string, mode fs.FileMode, digest string) error {
	file, err := os.Open(local)
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	defer file.Close()
	packed, in := io.Pipe()
	readErr := make(chan error, 1)
	go func() {
		err := pack(in, file)
		readErr <- err
		in.CloseWithError(err)
	}()
	_, err = c.Run(ctx, run.Cmd{Argv: []string{"sh", "-c", uploadScript, "sh", remote, octal(mode), digest}, Stdin: packed})
	// The guest may have stopped reading; whoever still writes must not hang.
	packed.CloseWithError(io.ErrClosedPipe)
	localErr := <-readErr
	if code, _ := run.ExitCode(err); code == digestMismatch {
		return &DigestError{Remote: remote, Want: digest}
	}
	if err != nil {
		return fmt.Errorf("upload to %s: %w", remote, err)
	}
	if localErr != nil {
		return fmt.Errorf("upload %s: %w", local, localErr)
	}
	return nil
}

// pack compresses from. Speed counts: unpacking in an emulated guest costs more than the bytes saved by packing tighter.
func pack(to io.Writer, from io.Reader) error {
	// gzip writes some hundred bytes at a time, and each write would become an SSH packet of its own, which is what an
	// emulated guest is slow at.
	out := bufio.NewWriterSize(to, 32<<10)
	w, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, from)
	return errors.Join(err, w.Close(), out.Flush())
}

func octal(mode fs.FileMode) string { return fmt.Sprintf("%o", mode.Perm()) }

func fileDigest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("upload: %w", err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("upload: read %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
