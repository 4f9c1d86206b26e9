package release

import "time"

// Hurry makes a source's pauses between tries, and the time in which something must come, short.
func Hurry(s *Source) { s.fetch.pause, s.fetch.stall = time.Millisecond, 300*time.Millisecond }

// RetryAfter is retryAfter.
var RetryAfter = retryAfter
