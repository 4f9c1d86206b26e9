package ui

import (
	"io"
	"strings"

	"golang.org/x/text/width"
)

// Cell is one field of a table; Paint colours it after it was padded and may be nil.
type Cell struct {
	Text  string
	Paint func(string) string
}

// Table writes rows in columns, as wide as their widest cell. The last column is not padded.
type Table struct {
	rows [][]Cell
	// Indent is put before each row.
	Indent string
}

// Row adds a row of plain cells.
func (t *Table) Row(texts ...string) {
	cells := make([]Cell, len(texts))
	for i, text := range texts {
		cells[i].Text = text
	}
	t.Cells(cells...)
}

// Cells adds a row.
func (t *Table) Cells(cells ...Cell) { t.rows = append(t.rows, cells) }

// Write writes the table.
func (t *Table) Write(w io.Writer) {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Width(cell.Text))
		}
	}
	for _, row := range t.rows {
		var b strings.Builder
		b.WriteString(t.Indent)
		for i, cell := range row {
			text := cell.Text
			pad := ""
			if i < len(row)-1 {
				pad = strings.Repeat(" ", widths[i]-Width(text)+2)
			}
			if cell.Paint != nil {
				text = cell.Paint(text)
			}
			b.WriteString(text + pad)
		}
		_, _ = io.WriteString(w, strings.TrimRight(b.String(), " ")+"\n")
	}
}

// Width is how many columns of a terminal a text takes; Korean, Japanese and Chinese letters take two.
func Width(text string) int {
	n := 0
	for _, r := range text {
		switch width.LookupRune(r).Kind() {
		case width.EastAsianWide, width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}
