// Package size reads and writes amounts of memory and disk space, such as 3GiB.
package size

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Size is a number of bytes, written with a unit such as 3GiB.
type Size int64

// The units that a size may be written in.
const (
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

// MiB is the size in whole MiB.
func (s Size) MiB() int { return int(s / MiB) }

// GiB is the size in whole GiB.
func (s Size) GiB() int { return int(s / GiB) }

// String writes the size in the largest unit that leaves a whole number.
func (s Size) String() string {
	for _, unit := range []struct {
		size Size
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}} {
		if s != 0 && s%unit.size == 0 {
			return strconv.FormatInt(int64(s/unit.size), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// MarshalText writes the size as String does.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

var sizePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)$`)

// Parse reads a size with a unit: MiB, GiB, TiB, or the short forms M, Mi, G, Gi, T, Ti, which mean the same.
func Parse(text string) (Size, error) {
	m := sizePattern.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return 0, fmt.Errorf("%q is not a size", text)
	}
	var unit Size
	switch strings.ToLower(m[2]) {
	case "":
		return 0, fmt.Errorf("%q has no unit", text)
	case "m", "mi", "mib":
		unit = MiB
	case "g", "gi", "gib":
		unit = GiB
	case "t", "ti", "tib":
		unit = TiB
	case "kb", "mb", "gb", "tb":
		return 0, fmt.Errorf("%q counts in thousands", text)
	default:
		return 0, fmt.Errorf("%q has the unknown unit %q", text, m[2])
	}
	number, err := strconv.ParseFloat(m[1], 64)
	if err != nil || number*float64(unit) > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return Size(math.Round(number * float64(unit))), nil
}
