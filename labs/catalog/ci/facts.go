package ci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cgoa-labs/labctl/labs/check"
)

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func fileDigest(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return digest(data), nil
}

// facts are the fields of a JSON file that a learner wrote.
type facts struct {
	path   string
	fields map[string]json.RawMessage
	digest string
}

// readFacts reads a JSON object with the given fields. Where it is not as it should be, the outcome says so and facts is nil.
func (l *lab) readFacts(path, missing, malformed, field string, names ...string) (*facts, check.Outcome, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, l.fail("a file "+path, "there is none", missing), nil
	}
	if err != nil {
		return nil, check.Outcome{}, err
	}
	// Some editors begin a file with a mark that JSON does not know.
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	f := &facts{path: path, digest: digest(data)}
	decoder := json.NewDecoder(bytes.NewReader(data))
	err = decoder.Decode(&f.fields)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is something after the object")
		}
	}
	if err != nil {
		return nil, l.fail("one JSON object", err.Error(), malformed).With("sha256", f.digest), nil
	}
	for _, name := range names {
		if raw, ok := f.fields[name]; !ok || string(raw) == "null" {
			return nil, l.fail("a field "+name, "it is not there", field).With("sha256", f.digest), nil
		}
	}
	return f, check.Outcome{}, nil
}

// text is a field that should be a string.
func (f *facts) text(name string) (string, bool) {
	var s string
	err := json.Unmarshal(f.fields[name], &s)
	return s, err == nil
}

// boolean is a field that should be true or false.
func (f *facts) boolean(name string) (value, ok bool) {
	err := json.Unmarshal(f.fields[name], &value)
	return value, err == nil
}

// number is a field that should be a whole number.
func (f *facts) number(name string) (int, bool) {
	var n json.Number
	raw := f.fields[name]
	if len(raw) == 0 || raw[0] == '"' || json.Unmarshal(raw, &n) != nil {
		return 0, false
	}
	v, err := n.Float64()
	return int(v), err == nil && v == float64(int(v))
}

// raw is how a field is written.
func (f *facts) raw(name string) string {
	s := string(f.fields[name])
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return fmt.Sprintf("%s: %s", name, s)
}
