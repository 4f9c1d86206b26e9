package ui

import (
	"strings"

	"github.com/rivo/uniseg"
)

// Wrap breaks a paragraph into lines of at most columns, as its script wants it (UAX #14): nothing that ends a clause begins a line, and lines
// without spaces, as in Japanese and Chinese, break between characters. A run of other letters and signs, such as a path or a command's option, is
// never broken, so that it can be copied; one that is longer than a line has a line of its own.
func Wrap(text string, columns int) []string {
	var lines []string
	line := ""
	for _, unit := range units(text) {
		if line != "" && Width(strings.TrimRight(line+unit, " ")) > columns {
			lines = append(lines, strings.TrimRight(line, " "))
			line = ""
		}
		line += unit
	}
	return append(lines, strings.TrimRight(line, " "))
}

// units are the pieces between which lines may break. The spaces of a text are single.
func units(text string) []string {
	var all []string
	// Each word by itself: the standard keeps a word and a sign that follows after a space together, such as a path's first slash.
	for word := range strings.SplitAfterSeq(strings.Join(strings.Fields(text), " "), " ") {
		first, state := true, -1
		for word != "" {
			var segment string
			segment, word, _, state = uniseg.FirstLineSegmentInString(word, state)
			if last := len(all) - 1; !first && visible(all[last][len(all[last])-1]) && visible(segment[0]) {
				all[last] += segment
			} else {
				all = append(all, segment)
			}
			first = false
		}
	}
	return all
}

// visible says of a byte that it is a visible ASCII character's.
func visible(b byte) bool { return b > ' ' && b < 0x7f }
