package up

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
)

// Learner is one row of a class.
type Learner struct {
	Name string
	// Email is whose it is; labctl sends nothing.
	Email string
	// Labs are those that the learner gets; none means all.
	Labs []string
	// At says where the learner was named, to be put before what is wrong with it.
	At string
}

// columns are those of a class file. Only the first must be there.
var columns = []string{"name", "email", "labs"}

// readLearners reads a class file: CSV with the columns name, email and labs, the labs separated by spaces.
func readLearners(path string) ([]Learner, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, &cli.UsageError{Msg: "cannot read the class: " + err.Error(), Fix: "name a CSV file with the columns " + strings.Join(columns, ", ")}
	}
	defer file.Close()
	learners, err := parseLearners(file, path)
	if err == nil && len(learners) == 0 {
		err = &cli.UsageError{Msg: path + " names no learner", Fix: "give each a row below the columns' names"}
	}
	return learners, err
}

func parseLearners(in io.Reader, path string) ([]Learner, error) {
	wrong := func(line int, format string, args ...any) error {
		return &cli.UsageError{Msg: fmt.Sprintf("%s:%d: ", path, line) + fmt.Sprintf(format, args...), Fix: "its first line names the columns, such as name,email,labs; each other line is a learner"}
	}
	text := bufio.NewReader(in)
	const mark = "\ufeff" // spreadsheets put a byte order mark first
	if start, err := text.Peek(len(mark)); err == nil && string(start) == mark {
		_, _ = text.Discard(len(mark))
	}
	r := csv.NewReader(text)
	r.FieldsPerRecord, r.TrimLeadingSpace = -1, true
	var header []string
	var learners []Learner
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return learners, nil
		}
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			return nil, wrong(parse.Line, "%v", parse.Err)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		line, _ := r.FieldPos(0)
		for i := range record {
			record[i] = strings.TrimSpace(record[i])
		}
		if header == nil {
			for i, column := range record {
				if record[i] = strings.ToLower(column); !slices.Contains(columns, record[i]) {
					return nil, wrong(line, "%q is no column", column)
				}
				if slices.Contains(record[:i], record[i]) {
					return nil, wrong(line, "the column %s is there twice", record[i])
				}
			}
			if !slices.Contains(record, "name") {
				return nil, wrong(line, "there is no column name")
			}
			header = record
			continue
		}
		if strings.Join(record, "") == "" {
			continue // spreadsheets also leave empty rows
		}
		if len(record) > len(header) {
			return nil, wrong(line, "%d fields, but %d columns", len(record), len(header))
		}
		l := Learner{At: fmt.Sprintf("%s:%d: ", path, line)}
		for i, value := range record {
			switch header[i] {
			case "name":
				l.Name = value
			case "email":
				l.Email = value
			case "labs":
				l.Labs = strings.Fields(strings.ReplaceAll(value, ";", " "))
			}
		}
		learners = append(learners, l)
	}
}
