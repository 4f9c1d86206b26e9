package ground

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/git"
	"github.com/cgoa-labs/labctl/labs/kube"
	"github.com/cgoa-labs/labctl/labs/sandbox"
	"github.com/cgoa-labs/labctl/labs/text"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Ground is the guest as one program sees it.
type Ground struct {
	// At are the lab's places.
	At Places
	// Runner runs the guest's git.
	Runner run.Runner
	// Say puts into the lab's language what is said of work on it; nil for English.
	Say func(text.Phrase) string

	kube    *kube.Client
	mu      sync.Mutex
	scratch *sandbox.Scratch
	memo    map[string]any
}

// New is a Ground on the given places.
func New(p Places, r run.Runner) *Ground { return &Ground{At: p, Runner: r} }

// Kube is the client of the guest's cluster.
func (g *Ground) Kube() (*kube.Client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.kube == nil {
		client, err := kube.Open(g.At.Kubeconfig)
		if err != nil {
			return nil, err
		}
		g.kube = client
	}
	return g.kube, nil
}

// Argo is the client of Argo CD's Applications.
func (g *Ground) Argo() (argo.Client, error) {
	client, err := g.Kube()
	if err != nil {
		return argo.Client{}, err
	}
	return argo.Client{API: client, Namespace: bootstrap.ArgoNamespace, GitNamespace: bootstrap.GitNamespace, GitDaemon: bootstrap.GitDaemon}, nil
}

// BareRepo and CloneRepo are the lab's repositories.
func (g *Ground) BareRepo() git.Repo  { return git.Repo{Dir: g.At.Bare(), Runner: g.Runner} }
func (g *Ground) CloneRepo() git.Repo { return git.Repo{Dir: g.At.Clone(), Runner: g.Runner} }

// Begin starts a pass of verification; see labs.Lab.Begin.
func (g *Ground) Begin(ctx context.Context) (end func(), err error) {
	scratch, err := sandbox.New(g.At.Scratch, g.At.ScratchPrefix())
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.scratch, g.memo = scratch, map[string]any{}
	g.mu.Unlock()
	end = func() {
		g.mu.Lock()
		closers := g.memo
		g.scratch, g.memo = nil, nil
		g.mu.Unlock()
		for _, v := range closers {
			if c, ok := v.(interface{ Close() error }); ok {
				_ = c.Close()
			}
		}
		_ = scratch.Close()
	}
	client, err := g.Kube()
	if err == nil {
		err = client.Ready(ctx)
	}
	return end, err
}

// Trouble returns an error where the guest itself is in trouble: no room, or an API server that does not answer. It is asked before
// a learner's program is blamed for failing.
func (g *Ground) Trouble(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	scratch, err := g.scratchNow()
	if err != nil {
		return err
	}
	if err := scratch.Probe(); err != nil {
		return err
	}
	client, err := g.Kube()
	if err != nil {
		return err
	}
	return client.Ready(ctx)
}

func (g *Ground) scratchNow() (*sandbox.Scratch, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.scratch == nil {
		return nil, fmt.Errorf("lab %s: no pass of verification has begun", g.At.Lab)
	}
	return g.scratch, nil
}

// Once gives f's value, called at most once in a pass of verification. What f could not find out is asked again.
func Once[T any](g *Ground, key string, f func() (T, error)) (T, error) {
	g.mu.Lock()
	v, ok := g.memo[key]
	g.mu.Unlock()
	if ok {
		return v.(T), nil
	}
	value, err := f()
	if err != nil {
		return value, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.memo != nil {
		g.memo[key] = value
	}
	return value, nil
}

// Exists reports whether something is at path.
func Exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return false, nil
	}
	return err == nil, err
}

// Documents splits a file of manifests into its documents: YAML ones after each other, or JSON objects as kubectl prints them.
func Documents(data []byte) ([][]byte, error) {
	var documents [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(document)) > 0 {
			documents = append(documents, objects(document)...)
		}
	}
}

// objects are the JSON objects of a document that is nothing but JSON; any other is left as it is.
func objects(document []byte) [][]byte {
	var found [][]byte
	decoder := json.NewDecoder(bytes.NewReader(document))
	for {
		var object json.RawMessage
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) && len(found) > 0 {
			return found
		}
		if err != nil || object[0] != '{' {
			return [][]byte{document}
		}
		found = append(found, object)
	}
}
