package ui

import "time"

// SetNow gives a progress another clock.
func (p *Progress) SetNow(now func() time.Time) { p.now, p.start = now, now() }

// Tick moves the moving line once.
func (p *Progress) Tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frame++
	p.draw()
}
