package release

import "time"

// Hurry makes a source's pauses between tries short.
func Hurry(s *Source) { s.fetch.pause = time.Millisecond }
