package strict_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/strict"
)

func TestNearest(t *testing.T) {
	names := []string{"alice", "bob", "learner"}
	for word, want := range map[string]string{"lerner": "learner", "Alice": "alice", "bo": "bob", "carol": "", "": ""} {
		require.Equal(t, want, strict.Nearest(word, names), word)
	}
}
