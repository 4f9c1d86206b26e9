// Package page writes results as HTML pages that stand alone: no script, no font, no picture and no style comes from elsewhere.
package page

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"

	"github.com/cgoa-labs/labctl/config/layout"
)

//go:embed page.css
var style string

// Page is what surrounds the body.
type Page struct {
	// Language of the texts, such as "ja"; Title is the window's.
	Language, Title string
	Style           template.CSS
	Body            any
}

// Parse makes a template for a page's body, which sees Body as its dot. Its text is part of labctl, so that a mistake in it is a panic.
func Parse(name, body string) *template.Template {
	page := template.Must(template.New(name).Funcs(template.FuncMap{"json": indented}).Parse(`<!doctype html>
<html lang="{{.Language}}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{.Title}}</title>
<style>{{.Style}}</style>
</head>
<body>
{{template "body" .Body}}
</body>
</html>
`))
	template.Must(page.New("body").Parse(body))
	return page
}

func indented(value any) (string, error) {
	data, err := json.MarshalIndent(value, "", "  ")
	return string(data), err
}

// Write writes a page that only its owner may read, whole or not at all.
func Write(path string, t *template.Template, p Page) error {
	p.Style = template.CSS(style)
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return File(path, b.Bytes())
}

// File writes a file that only its owner may read, whole or not at all.
func File(path string, data []byte) error {
	if err := layout.Write(layout.Follow(path), data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
