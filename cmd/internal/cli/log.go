package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/renameio/v2"
)

// LogFile is a debug log in a file that is opened at the first record, so that a command that logs nothing leaves
// nothing. At opening, a file that has grown beyond Max bytes keeps only its newest half of that.
// A log that cannot be written is no reason to fail: its records are dropped.
type LogFile struct {
	Path string
	Max  int64

	once sync.Once
	file *os.File
}

// Logger writes every level to the file.
func (l *LogFile) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})).With("pid", os.Getpid())
}

// Write implements io.Writer and never fails.
func (l *LogFile) Write(p []byte) (int, error) {
	l.once.Do(func() { l.file = l.open() })
	if l.file != nil {
		_, _ = l.file.Write(p)
	}
	return len(p), nil
}

// Close closes the file.
func (l *LogFile) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

func (l *LogFile) open() *os.File {
	if err := os.MkdirAll(filepath.Dir(l.Path), 0o700); err != nil {
		return nil
	}
	if info, err := os.Stat(l.Path); err == nil && info.Size() > l.Max {
		_ = keepTail(l.Path, l.Max/2)
	}
	file, err := os.OpenFile(l.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil
	}
	return file
}

// keepTail replaces a file by its last n bytes, from the start of a line on.
func keepTail(path string, n int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(-n, io.SeekEnd); err != nil {
		return fmt.Errorf("shorten %s: %w", path, err)
	}
	tail, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("shorten %s: %w", path, err)
	}
	for i, b := range tail {
		if b == '\n' {
			tail = tail[i+1:]
			break
		}
	}
	return renameio.WriteFile(path, tail, 0o600)
}
