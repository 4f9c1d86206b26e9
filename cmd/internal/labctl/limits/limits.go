// Package limits keeps how long an instance may run and idle before `labctl gc` stops it. Stopping keeps memory and work.
package limits

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
)

// Limits are one instance's. The zero one has none.
type Limits struct {
	Schema string `json:"schema"`
	// TTLSeconds is how long the machine may run from its start on, and IdleSeconds how long nobody may have done anything in it; 0 is for ever.
	TTLSeconds  int64 `json:"ttlSeconds,omitempty"`
	IdleSeconds int64 `json:"idleSeconds,omitempty"`
	// Warned is when its learner was told that it will be stopped, and WarnedOf the limit that was told; zero where nothing is imminent.
	Warned   time.Time `json:"warned,omitzero"`
	WarnedOf Kind      `json:"warnedOf,omitempty"`
}

// Kind names one of the limits.
type Kind string

// The limits.
const (
	TTL  Kind = "ttl"
	Idle Kind = "idle"
)

const schema = "labctl.dev/limits/v1"

// Of are limits of these durations.
func Of(ttl, idle time.Duration) Limits {
	return Limits{TTLSeconds: int64(ttl.Seconds()), IdleSeconds: int64(idle.Seconds())}
}

// TTL and Idle are the limits as durations.
func (l Limits) TTL() time.Duration  { return time.Duration(l.TTLSeconds) * time.Second }
func (l Limits) Idle() time.Duration { return time.Duration(l.IdleSeconds) * time.Second }

// None says that there is nothing to keep to.
func (l Limits) None() bool { return l.TTLSeconds == 0 && l.IdleSeconds == 0 }

// Next is the limit that is reached first, and how long that is away, for a machine that has run and idled for so long. There is none for "".
func (l Limits) Next(ran, idled time.Duration) (Kind, time.Duration) {
	kind, left := Kind(""), time.Duration(0)
	if l.TTLSeconds > 0 {
		kind, left = TTL, l.TTL()-ran
	}
	if l.IdleSeconds > 0 && (kind == "" || l.Idle()-idled < left) {
		kind, left = Idle, l.Idle()-idled
	}
	return kind, left
}

// Load reads an instance's limits; none where it has none.
func Load(dir layout.InstanceDir) (Limits, error) {
	data, err := os.ReadFile(dir.Limits())
	if errors.Is(err, fs.ErrNotExist) {
		return Limits{}, nil
	}
	if err != nil {
		return Limits{}, fmt.Errorf("read the limits: %w", err)
	}
	var l Limits
	if err := json.Unmarshal(data, &l); err != nil || l.Schema != schema {
		return Limits{}, fmt.Errorf("read the limits: %s is not what labctl writes", dir.Limits())
	}
	return l, nil
}

// Save keeps an instance's limits; none removes them.
func (l Limits) Save(dir layout.InstanceDir) error {
	if l.None() {
		if err := os.Remove(dir.Limits()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget the limits: %w", err)
		}
		return nil
	}
	l.Schema = schema
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	path := dir.Limits()
	if err := layout.Write(path, append(data, '\n')); err != nil {
		return fmt.Errorf("keep the limits: %w", err)
	}
	return nil
}
