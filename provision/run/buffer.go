package run

import "sync"

// Buffer is a writer that keeps the newest MaxOutput bytes. It is safe for concurrent use; the zero value is empty.
type Buffer struct {
	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer and never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p...)
	// Trimming only at twice the limit keeps the cost of a long stream linear.
	if len(b.buf) > 2*MaxOutput {
		b.buf = append(b.buf[:0], b.buf[len(b.buf)-MaxOutput:]...)
	}
	return len(p), nil
}

// Bytes is a copy of what is kept.
func (b *Buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.buf
	if over := len(kept) - MaxOutput; over > 0 {
		kept = kept[over:]
	}
	return append([]byte(nil), kept...)
}
