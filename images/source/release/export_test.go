package release

import "time"

// Hurry makes a source's pauses between tries short, and the time in which something must come, where it is not 0.
func Hurry(s *Source, stall time.Duration) {
	if s.fetch.pause = time.Millisecond; stall > 0 {
		s.fetch.stall = stall
	}
}

// RetryAfter is retryAfter.
var RetryAfter = retryAfter
