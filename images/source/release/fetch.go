package release

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/renameio/v2"
)

// ChecksumError says that what was downloaded is not what upstream published, or what is locked. Nothing of it is kept.
type ChecksumError struct {
	URL, Want, Got string
	// Locked says that Want is the lock's.
	Locked bool
}

func (e *ChecksumError) Error() string {
	who := "upstream's list"
	if e.Locked {
		who = "the lock"
	}
	return fmt.Sprintf("%s has sha256 %s, but %s says %s", shown(e.URL), e.Got, who, e.Want)
}

// Hint is the next action.
func (e *ChecksumError) Hint() string {
	if e.Locked {
		return "nothing was kept; where upstream's change is known and good, write the lock anew with `labctl image lock`"
	}
	return "nothing was kept; try again, and if it happens again do not trust the server or the proxy in between"
}

// ContentError says that a server answered with something else than the file.
type ContentError struct {
	URL string
	Err error
}

func (e *ContentError) Error() string {
	return fmt.Sprintf("%s is not what it should be: %v", shown(e.URL), e.Err)
}
func (e *ContentError) Unwrap() error { return e.Err }

// Hint is the next action.
func (e *ContentError) Hint() string { return reachHint }

// reachHint is what to do where a host does not give what upstream's would.
const reachHint = "see whether the address answers, and by way of which proxy; a mirror is set with image.releaseMirror, and `--source modules` needs no release"

// FetchError says that a host could not be asked, or broke off.
type FetchError struct {
	URL string
	Err error
}

func (e *FetchError) Error() string { return fmt.Sprintf("%s: %v", shown(e.URL), e.Err) }
func (e *FetchError) Unwrap() error { return e.Err }

// Hint is the next action.
func (e *FetchError) Hint() string { return reachHint }

// shown is an address without what is nobody's business: a password, and the signature that a redirect's address carries.
func shown(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the address"
	}
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	return u.Redacted()
}

// bare is an error of the HTTP client without the address in it, which is told by those who asked.
func bare(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var lookup *net.DNSError // it names the resolver, which tells nobody anything
	if errors.As(err, &lookup) {
		err = fmt.Errorf("look up %s: %s", lookup.Name, lookup.Err)
	}
	return err
}

// StatusError says that the server answered, but not with the file.
type StatusError struct {
	// URL is empty where who was asked is told beside it.
	URL  string
	Code int
}

func (e *StatusError) Error() string {
	said := fmt.Sprintf("%d %s", e.Code, http.StatusText(e.Code))
	if e.URL == "" {
		return said
	}
	return shown(e.URL) + ": " + said
}

// Hint is the next action.
func (e *StatusError) Hint() string {
	switch e.Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return "labctl has no name and password for it: use a mirror that asks for none with image.releaseMirror, or `--source modules`"
	case http.StatusNotFound:
		return "where this is a mirror, fill it first: `labctl image lock` names what it must have; upstream itself is asked without image.releaseMirror"
	}
	return reachHint
}

const (
	fetchTries = 4
	// stallTime is how long a download may go without a byte.
	stallTime = 30 * time.Second
	// maxText bounds what is read into memory: lists of checksums, and Argo CD's manifests of two megabytes.
	maxText = 16 << 20
)

type fetcher struct {
	client *http.Client
	// pause is the first pause between tries, stall how long a download may go without a byte.
	pause, stall time.Duration
	// downloads is the folder of what has come halfway. A download goes on there, also in another run.
	downloads string
	// say is told of what is waited for, nil where nobody listens.
	say func(string)
}

// telling is a fetcher that says what it waits for.
func (f fetcher) telling(say func(string)) fetcher {
	f.say = say
	return f
}

// sums downloads a sha256 list, lines of "HEX  NAME", and returns the digests by name.
func (f fetcher) sums(ctx context.Context, url string) (map[string]string, error) {
	out, err := f.text(ctx, url)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	scanner := bufio.NewScanner(out)
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
		return nil, &ContentError{URL: url, Err: errors.New("it lists no sha256")}
	}
	return sums, scanner.Err()
}

// text downloads a small file.
func (f fetcher) text(ctx context.Context, url string) (*bytes.Buffer, error) {
	var out bytes.Buffer
	err := f.retry(ctx, func() error {
		out.Reset()
		return f.once(ctx, url, 0, func(int64) (io.Writer, error) { return &limited{&out}, nil }, nil)
	})
	return &out, err
}

// limited refuses more than maxText.
type limited struct{ to *bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	if l.to.Len()+len(b) > maxText {
		return 0, backoff.Permanent(fmt.Errorf("the answer is longer than %d bytes", maxText))
	}
	return l.to.Write(b)
}

// file downloads url to a file with this digest, or leaves none there. What has come before an interruption need not come again: it is kept
// under the digest that it must have in the end. progress is told how much has come.
func (f fetcher) file(ctx context.Context, url, want, to string, perm os.FileMode, progress func(done, total int64)) (err error) {
	if want == "" {
		return fmt.Errorf("upstream's list has no sha256 for %s", path.Base(url))
	}
	if err := os.MkdirAll(f.downloads, 0o700); err != nil {
		return err
	}
	f.forget()
	part, err := os.OpenFile(filepath.Join(f.downloads, want+".part"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	whole := false
	defer func() {
		if !whole {
			err = errors.Join(err, part.Close())
		}
	}()
	begun, err := part.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	got, err := f.fill(ctx, url, part, progress)
	if err == nil && got != want && begun > 0 {
		// What an earlier run left may be what is wrong: once more, from the start.
		if err = part.Truncate(0); err == nil {
			got, err = f.fill(ctx, url, part, progress)
		}
	}
	if err != nil {
		// A half is worth keeping, nothing is not.
		if info, statErr := part.Stat(); statErr == nil && info.Size() == 0 {
			err = errors.Join(err, os.Remove(part.Name()))
		}
		return err
	}
	if got != want {
		return errors.Join(&ChecksumError{URL: url, Want: want, Got: got}, os.Remove(part.Name()))
	}
	whole = true
	if err := errors.Join(part.Chmod(perm), part.Close()); err != nil {
		return err
	}
	return move(part.Name(), to, perm)
}

// halfLife is how long a half is worth keeping.
const halfLife = 7 * 24 * time.Hour

// forget removes halves that nobody came back for.
func (f fetcher) forget() {
	halves, _ := filepath.Glob(filepath.Join(f.downloads, "*.part")) // the pattern is good
	for _, half := range halves {
		if info, err := os.Stat(half); err == nil && time.Since(info.ModTime()) > halfLife {
			_ = os.Remove(half) // it is in nobody's way
		}
	}
}

// fill downloads what a file lacks, and returns the digest of all of it.
func (f fetcher) fill(ctx context.Context, url string, part *os.File, progress func(done, total int64)) (string, error) {
	if err := f.retry(ctx, func() error {
		have, err := part.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		return f.once(ctx, url, have, func(from int64) (io.Writer, error) {
			if err := part.Truncate(from); err != nil {
				return nil, err
			}
			_, err := part.Seek(from, io.SeekStart)
			return final{part}, err
		}, progress)
	}); err != nil {
		return "", err
	}
	return digestOf(part)
}

// final is a writer whose errors another try does not heal: the disk's.
type final struct{ io.Writer }

func (w final) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		err = backoff.Permanent(err)
	}
	return n, err
}

func digestOf(f *os.File) (string, error) {
	digest := sha256.New()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	_, err := io.Copy(digest, f)
	return hex.EncodeToString(digest.Sum(nil)), err
}

// move renames a file, or copies it where that is on another file system.
func move(from, to string, perm os.FileMode) error {
	err := os.Rename(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	err = renameio.WriteFile(to, nil, perm)
	if err == nil {
		var out *os.File
		if out, err = os.OpenFile(to, os.O_WRONLY|os.O_TRUNC, perm); err == nil {
			_, err = io.Copy(out, in)
			err = errors.Join(err, out.Close())
		}
	}
	return errors.Join(err, in.Close(), os.Remove(from))
}

// LimitedError says that a server wants fewer requests.
type LimitedError struct {
	URL string
	// After is how long the server wants to be left alone; 0 where it does not say.
	After time.Duration
}

func (e *LimitedError) Error() string {
	s := shown(e.URL) + ": the server limits how often it is asked"
	if e.After > 0 {
		s += fmt.Sprintf(", and wants %s without a request", e.After.Round(time.Second))
	}
	return s
}

// Hint is the next action.
func (e *LimitedError) Hint() string {
	return "wait, or set a mirror of the releases with image.releaseMirror"
}

// longest is how long a server's wish to wait is followed; what it wants beyond that is an error.
const longest = 30 * time.Second

// worthTelling is how long a pause is of which nobody should wonder.
const worthTelling = time.Second

// retry tries again what may pass by itself: a cut connection, 429, 5xx.
func (f fetcher) retry(ctx context.Context, try func() error) error {
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval = f.pause
	var last error // without what tells backoff what to do
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		if last = try(); last == nil {
			return struct{}{}, nil
		}
		var status *StatusError
		var limit *LimitedError
		var permanent *backoff.PermanentError
		switch {
		case ctx.Err() != nil:
			last = context.Cause(ctx)
			return struct{}{}, backoff.Permanent(last)
		case errors.As(last, &permanent):
			last = permanent.Unwrap()
			return struct{}{}, backoff.Permanent(last)
		case errors.As(last, &limit) && limit.After > longest, errors.As(last, &status) && status.Code < 500:
			return struct{}{}, backoff.Permanent(last)
		case errors.As(last, &limit) && limit.After > 0:
			return struct{}{}, backoff.RetryAfter(int(limit.After.Seconds()))
		}
		return struct{}{}, last
	}, backoff.WithBackOff(policy), backoff.WithMaxTries(fetchTries), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(_ error, pause time.Duration) {
		if f.say != nil && pause >= worthTelling {
			f.say(fmt.Sprintf("%v; again in %s", last, pause.Round(time.Second)))
		}
	}))
	if ctx.Err() != nil && err != nil {
		return context.Cause(ctx)
	}
	if err != nil && last != nil {
		return last
	}
	return err
}

// once asks for url from a byte on. start is called with the byte from which the server answers, and gives where that goes.
func (f fetcher) once(ctx context.Context, address string, have int64, start func(from int64) (io.Writer, error), progress func(done, total int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(f.stall, func() { cancel(fmt.Errorf("nothing came for %s", f.stall)) })
	defer timer.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	res, err := f.client.Do(req)
	if err != nil {
		return &FetchError{URL: address, Err: cmp.Or(context.Cause(ctx), bare(err))}
	}
	defer res.Body.Close()
	from := int64(0)
	switch res.StatusCode {
	case http.StatusPartialContent:
		if from = have; !strings.HasPrefix(res.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)) {
			return &ContentError{URL: address, Err: fmt.Errorf("the server answers with another part of the file than was asked for: %s", res.Header.Get("Content-Range"))}
		}
	case http.StatusRequestedRangeNotSatisfiable:
		// All of it is there already, or it is another file by now: the digest will tell.
		_, err := start(have)
		return err
	default:
		if err := refusal(address, res); err != nil {
			return err
		}
	}
	w, err := start(from)
	if err != nil {
		return err
	}
	done, total := from, from+res.ContentLength
	n, err := io.Copy(w, progressReader{res.Body, func(n int) {
		timer.Reset(f.stall)
		if done += int64(n); progress != nil && res.ContentLength >= 0 {
			progress(done, total)
		}
	}})
	if err == nil && res.ContentLength >= 0 && n != res.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		if permanent := (*backoff.PermanentError)(nil); errors.As(err, &permanent) {
			return err
		}
		return &FetchError{URL: address, Err: cmp.Or(context.Cause(ctx), err)}
	}
	return nil
}

// retryAfter is how long a server wants to be left alone, which it says in seconds or as a date; 0 where it does not say.
func retryAfter(res *http.Response) time.Duration {
	said := res.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(said); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(said); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// refusal is the error that an answer means, nil for the file itself.
func refusal(url string, res *http.Response) error {
	switch {
	case res.StatusCode == http.StatusTooManyRequests:
		return &LimitedError{URL: url, After: retryAfter(res)}
	case res.StatusCode == http.StatusOK, res.StatusCode >= 300 && res.StatusCode < 400:
		return nil
	}
	return &StatusError{URL: url, Code: res.StatusCode}
}

type progressReader struct {
	io.Reader
	moved func(n int)
}

func (p progressReader) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.moved(n)
	}
	return n, err
}
