package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/check"
)

// Facts are the fields of a JSON file that a learner wrote.
type Facts struct {
	// Digest is the file's sha256.
	Digest string
	fields map[string]json.RawMessage
}

// ReadFacts reads a JSON object with the given fields. Where it is not as it should be, the outcome says so and the facts are nil.
func (j *Judge) ReadFacts(path, missing, malformed, field string, names ...string) (*Facts, check.Outcome, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, j.Fail(text.Say("a file %s", path), text.Say("there is none"), missing), nil
	}
	if err != nil {
		return nil, check.Outcome{}, err
	}
	// Some editors begin a file with a mark that JSON does not know.
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	f := &Facts{Digest: Digest(data)}
	decoder := json.NewDecoder(bytes.NewReader(data))
	err = decoder.Decode(&f.fields)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is something after the object")
		}
	}
	if err != nil {
		return nil, j.Fail(text.Say("one JSON object"), text.Verbatim(err.Error()), malformed).With("sha256", f.Digest), nil
	}
	for _, name := range names {
		if raw, ok := f.fields[name]; !ok || string(raw) == "null" {
			return nil, j.Fail(text.Say("a field %s", name), text.Say("it is not there"), field).With("sha256", f.Digest), nil
		}
	}
	return f, check.Outcome{}, nil
}

// Text is a field that should be a string.
func (f *Facts) Text(name string) (string, bool) {
	var s string
	err := json.Unmarshal(f.fields[name], &s)
	return s, err == nil
}

// Texts is a field that should be a list of strings.
func (f *Facts) Texts(name string) ([]string, bool) {
	var list []*string
	if err := json.Unmarshal(f.fields[name], &list); err != nil {
		return nil, false
	}
	texts := make([]string, len(list))
	for i, s := range list {
		if s == nil {
			return nil, false
		}
		texts[i] = *s
	}
	return texts, true
}

// Boolean is a field that should be true or false.
func (f *Facts) Boolean(name string) (value, ok bool) {
	err := json.Unmarshal(f.fields[name], &value)
	return value, err == nil
}

// Number is a field that should be a whole number.
func (f *Facts) Number(name string) (int, bool) {
	var n json.Number
	raw := f.fields[name]
	if len(raw) == 0 || raw[0] == '"' || json.Unmarshal(raw, &n) != nil {
		return 0, false
	}
	v, err := n.Float64()
	return int(v), err == nil && v == float64(int(v))
}

// Raw is how a field is written.
func (f *Facts) Raw(name string) string {
	s := string(f.fields[name])
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return fmt.Sprintf("%s: %s", name, s)
}

// Differs fails what a field says.
func (j *Judge) Differs(f *Facts, wanted text.Phrase, name, hint string) check.Outcome {
	return j.Fail(wanted, text.Verbatim(f.Raw(name)), hint).With("sha256", f.Digest)
}
