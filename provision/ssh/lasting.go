package ssh

import (
	"context"
	"sync"

	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Lasting is a Runner that outlives its connection: once that was lost, the next command logs in anew. A guest whose kernel found itself broken starts
// anew by itself, and is then waited for. It is safe for concurrent use.
type Lasting struct {
	ep   provision.Endpoint
	opts Options

	mu     sync.Mutex
	client *Client
}

var _ run.Runner = (*Lasting)(nil)

// DialLasting is Dial for a Lasting.
func DialLasting(ctx context.Context, ep provision.Endpoint, opts Options) (*Lasting, error) {
	client, err := Dial(ctx, ep, opts)
	if err != nil {
		return nil, err
	}
	return &Lasting{ep: ep, opts: opts, client: client}, nil
}

// Run implements run.Runner. What it returns when the connection is lost is *LostError, as from Client.
func (l *Lasting) Run(ctx context.Context, cmd run.Cmd) (run.Result, error) {
	client, err := l.connected(ctx)
	if err != nil {
		return run.Result{}, err
	}
	return client.Run(ctx, cmd)
}

func (l *Lasting) connected(ctx context.Context) (*Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client != nil {
		select {
		case <-l.client.Closed():
			_ = l.client.Close()
			l.client = nil
		default:
			return l.client, nil
		}
	}
	var err error
	l.client, err = Dial(ctx, l.ep, l.opts)
	return l.client, err
}

// Close ends the connection; closing twice is no error.
func (l *Lasting) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		return nil
	}
	return l.client.Close()
}
