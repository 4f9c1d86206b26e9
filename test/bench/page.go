package main

import (
	_ "embed"
	"html/template"
	"os"
)

//go:embed page.html
var pageText string

// page plots the figures: a bar for each, as long as its part of the longest.
var page = template.Must(template.New("bench").Funcs(template.FuncMap{
	"part": func(d document, f figure) float64 {
		longest := 0.0
		for _, other := range d.Figures {
			longest = max(longest, other.Seconds)
		}
		return round(100 * f.Seconds / longest)
	},
}).Parse(pageText))

func writePage(path string, d document) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := page.Execute(file, d); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
