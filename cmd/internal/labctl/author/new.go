package author

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/labs/text"
)

//go:embed skeleton
var skeleton embed.FS

// created is the result of lab new as JSON.
type created struct {
	Schema string   `json:"schema"`
	Lab    string   `json:"lab"`
	Tree   string   `json:"tree"`
	Files  []string `json:"files"`
}

// NewNew is the command lab new.
func NewNew(f *factory.Factory) *cobra.Command {
	var dir string
	var format ui.Format
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Begin a lab of your own",
		Long: `Begin a lab in labctl's source tree: a small one of two steps that works, with its words in four languages, its reference solution, its
reset and its proof. Replace all of that with your own, and keep ` + "`labctl lab test`" + ` passing.`,
		Example: "  labctl lab new hello\n  labctl lab test labs/catalog/hello",
		Args:    cli.OneArg("the lab's name"),
		RunE: func(_ *cobra.Command, args []string) error {
			tree, err := findTree(dir)
			if err != nil {
				return err
			}
			doc, err := create(tree, args[0])
			if err != nil {
				return err
			}
			if format == ui.JSON {
				return f.UI().JSON(doc)
			}
			for _, file := range doc.Files {
				f.UI().Print("%s", file)
			}
			lab := filepath.Join(tree, catalogDir, doc.Lab)
			if here, err := os.Getwd(); err == nil {
				if near, err := filepath.Rel(here, lab); err == nil {
					lab = near
				}
			}
			f.UI().Print("\nlab %[1]s is begun. Next:\n  labctl lab test %[2]s         # its proof, without a VM\n  labctl lab test %[2]s --vm    # and in an instance of its own\n  make build                                 # labctl knows it from then on", doc.Lab, lab)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "tree", ".", "a `FOLDER` in labctl's source tree")
	_ = cmd.MarkFlagDirname("tree")
	ui.AddFormat(cmd, &format)
	return cmd
}

// nameForm is a lab's name: a Go package, a folder, and the beginning of names in a cluster.
var nameForm = regexp.MustCompile(`^[a-z][a-z0-9]{1,15}$`)

// reserved are names that the guest or labctl's programs have already.
var reserved = []string{"default", "argocd", "gitsrv", "labs", "check", "ground", "judge", "prompt", "proof", "text", "run", "main", "make", "context", "os", "cli", "labcmd", "lab", "labtest", "require", "testing", "fmt", "yaml"}

func checkName(name string) error {
	wrong := func(why string) error {
		return &cli.UsageError{Msg: fmt.Sprintf("%q cannot be a lab's name: %s", name, why), Fix: "use 2 to 16 small letters and digits, a letter first, such as hello"}
	}
	switch {
	case !nameForm.MatchString(name):
		return wrong("its form is not right")
	case token.IsKeyword(name) || slices.Contains(reserved, name):
		return wrong("it has another meaning")
	}
	return nil
}

// create writes the skeleton of a lab, and the list of all labs anew. Where something of it is there already, nothing is changed.
func create(tree, name string) (created, error) {
	doc := created{Schema: ui.Schema("lab-new"), Lab: name, Tree: tree}
	if err := checkName(name); err != nil {
		return doc, err
	}
	files, err := files(name)
	if err != nil {
		return doc, err
	}
	folders := []string{path.Join(catalogDir, name), path.Join("cmd", "lab-"+name)}
	for _, folder := range folders {
		if there, err := exists(filepath.Join(tree, folder)); err != nil {
			return doc, err
		} else if there {
			return doc, &cli.UsageError{Msg: fmt.Sprintf("there is a folder %s already", folder), Fix: "choose another name, or remove what is there"}
		}
	}
	ids, err := labsIn(tree)
	if err != nil {
		return doc, err
	}
	// The whole folders appear at once, each; the list comes last.
	for _, folder := range folders {
		if err := place(tree, folder, files); err != nil {
			return doc, err
		}
	}
	for file := range files {
		doc.Files = append(doc.Files, file)
	}
	slices.Sort(doc.Files)
	doc.Files = append(doc.Files, catalogFile)
	return doc, renameio.WriteFile(filepath.Join(tree, catalogFile), Catalog(append(ids, name)), 0o644)
}

// files are the skeleton's, by their paths below the tree's root.
func files(name string) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := fs.WalkDir(skeleton, "skeleton", func(from string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := skeleton.ReadFile(from)
		if err != nil {
			return err
		}
		below := strings.TrimSuffix(strings.TrimPrefix(from, "skeleton/"), ".tmpl")
		to := path.Join(catalogDir, name, below)
		switch below {
		case "main.go":
			to = path.Join("cmd", "lab-"+name, below)
		case "lab.go":
			to = path.Join(catalogDir, name, name+".go")
		case "lab_test.go":
			to = path.Join(catalogDir, name, name+"_test.go")
		}
		data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("@NAME@"), []byte(name)), []byte("@MODULE@"), []byte(Module))
		if strings.HasSuffix(to, ".go") {
			// The name's length and letters decide on columns and on the order of imports.
			if data, err = format.Source(data); err != nil {
				return fmt.Errorf("%s: %w", from, err)
			}
		}
		all[to] = data
		return nil
	})
	if err != nil {
		return nil, err
	}
	folder := path.Join(catalogDir, name, "text")
	source, err := text.Parse(name, text.Source, all[path.Join(folder, text.Source+".yaml")])
	if err == nil {
		all[path.Join(folder, text.TranslatedFile)], err = text.Translated(source)
	}
	return all, err
}

// place writes the files that belong below a folder, and then gives the folder its name.
func place(tree, folder string, files map[string][]byte) (err error) {
	parent := filepath.Join(tree, filepath.Dir(folder))
	temp, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	for to, data := range files {
		below, ok := strings.CutPrefix(to, folder+"/")
		if !ok {
			continue
		}
		at := filepath.Join(temp, below)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, data, 0o644); err != nil {
			return err
		}
	}
	return os.Rename(temp, filepath.Join(tree, folder))
}

const catalogFile = catalogDir + "/catalog.go"

// Catalog is the Go file that lists labs.
func Catalog(ids []string) []byte {
	slices.Sort(ids)
	var imports, entries strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&imports, "\t%s \"%s/%s/%s/text\"\n", id, Module, catalogDir, id)
		fmt.Fprintf(&entries, "\t\t{%q, %s.In},\n", id, id)
	}
	return []byte(fmt.Sprintf(catalogForm, imports.String(), Module, entries.String()))
}

const catalogForm = `// Code generated by labctl lab new. DO NOT EDIT.

// Package catalog is the list of all labs.
package catalog

import (
%s	"%s/labs/text"
)

// Entry is one lab.
type Entry struct {
	ID   string
	Text func(language string) (text.Text, error)
}

// All is every lab, in the order of their names.
func All() []Entry {
	return []Entry{
%s	}
}
`
