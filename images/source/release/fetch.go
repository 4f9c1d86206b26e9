package release

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// ChecksumError says that what was downloaded is not what upstream published. Nothing of it is kept.
type ChecksumError struct{ URL, Want, Got string }

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%s has sha256 %s, but upstream's list says %s", e.URL, e.Got, e.Want)
}

// Hint is the next action.
func (e *ChecksumError) Hint() string {
	return "nothing was kept; try again, and if it happens again do not trust the server or the proxy in between"
}

// StatusError says that the server answered, but not with the file.
type StatusError struct {
	URL  string
	Code int
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %d %s", e.URL, e.Code, http.StatusText(e.Code))
}

const (
	fetchTries = 4
	// stall is how long a download may go without a byte.
	stall   = 30 * time.Second
	maxList = 1 << 20
)

type fetcher struct {
	client *http.Client
	// pause is the first pause between tries.
	pause time.Duration
}

// sums downloads a sha256 list, lines of "HEX  NAME", and returns the digests by name.
func (f fetcher) sums(ctx context.Context, url string) (map[string]string, error) {
	var out bytes.Buffer
	if err := f.get(ctx, url, &out, func() error { out.Reset(); return nil }); err != nil {
		return nil, err
	}
	sums := map[string]string{}
	scanner := bufio.NewScanner(io.LimitReader(&out, maxList))
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) != 2 {
			continue
		}
		if digest, err := hex.DecodeString(fields[0]); err == nil && len(digest) == sha256.Size {
			sums[strings.TrimPrefix(path.Base(fields[1]), "*")] = strings.ToLower(fields[0])
		}
	}
	if len(sums) == 0 {
		return nil, fmt.Errorf("%s lists no sha256", url)
	}
	return sums, scanner.Err()
}

// file downloads url to a file with this digest, or leaves none.
func (f fetcher) file(ctx context.Context, url, want, to string, perm os.FileMode) (err error) {
	if want == "" {
		return fmt.Errorf("upstream's list has no sha256 for %s", path.Base(url))
	}
	tmp, err := os.CreateTemp(filepath.Dir(to), ".fetch-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	digest := sha256.New()
	err = f.get(ctx, url, io.MultiWriter(tmp, digest), func() error {
		digest.Reset()
		if _, err := tmp.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return tmp.Truncate(0)
	})
	if err := errors.Join(err, tmp.Chmod(perm), tmp.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != want {
		return &ChecksumError{URL: url, Want: want, Got: got}
	}
	return os.Rename(tmp.Name(), to)
}

// get copies url's body to w. What may pass by itself (a cut connection, 429, 5xx) is tried again, after restart has emptied w.
func (f fetcher) get(ctx context.Context, url string, w io.Writer, restart func() error) error {
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval = f.pause
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		if err := restart(); err != nil {
			return struct{}{}, backoff.Permanent(err)
		}
		err := f.once(ctx, url, w)
		var status *StatusError
		if errors.As(err, &status) && status.Code < 500 && status.Code != http.StatusTooManyRequests {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(policy), backoff.WithMaxTries(fetchTries))
	return err
}

func (f fetcher) once(ctx context.Context, url string, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(stall, func() { cancel(fmt.Errorf("%s: nothing came for %s", url, stall)) })
	defer timer.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := f.client.Do(req)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return &StatusError{URL: url, Code: res.StatusCode}
	}
	n, err := io.Copy(w, progressReader{res.Body, func() { timer.Reset(stall) }})
	if err == nil && res.ContentLength >= 0 && n != res.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%s: %w", url, errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

type progressReader struct {
	io.Reader
	moved func()
}

func (p progressReader) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.moved()
	}
	return n, err
}
