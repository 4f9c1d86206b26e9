package stack

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/cgoa-labs/labctl/provision/peer"
)

// server is the resource provider that Pulumi attaches to: each resource is an instance, known by its name.
type server struct {
	pulumirpc.UnimplementedResourceProviderServer
	// One of them is set: a run makes or removes, and touches only these instances.
	up, down Do
	names    []string
	ctx      context.Context

	mu   sync.Mutex
	done map[string]error
}

// ownUser takes connections of this machine's programs of the same user only: whoever can call the provider can remove instances.
type ownUser struct{ net.Listener }

func (l *ownUser) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if peer.IsOwn(conn) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// serve answers until stop, which waits for what is at work, and may be called again.
func (p *server) serve(ctx context.Context, listener net.Listener) (stop func()) {
	var cancel context.CancelFunc
	p.ctx, cancel = context.WithCancel(ctx)
	p.done = map[string]error{}
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	pulumirpc.RegisterResourceProviderServer(s, p)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(listener) // ends by Stop
	}()
	return func() {
		cancel()
		s.Stop()
		<-served
	}
}

// work does one thing to one instance, for as long as both Pulumi and labctl want it.
func (p *server) work(ctx context.Context, name string, do Do) error {
	if do == nil || !slices.Contains(p.names, name) {
		return fmt.Errorf("%s is not to be touched in this run", name)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	err := do(ctx, name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[name] = err
	return err
}

// outcomes are those of names; told says that each was reached.
func (p *server) outcomes(names []string) (_ map[string]error, told bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	told = true
	for _, name := range names {
		if _, ok := p.done[name]; !ok {
			p.done[name], told = ErrNotReached, false
		}
	}
	return maps.Clone(p.done), told
}

func (*server) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: "1.0.0"}, nil
}

func (*server) Attach(context.Context, *pulumirpc.PluginAttach) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (*server) CheckConfig(_ context.Context, req *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	return &pulumirpc.CheckResponse{Inputs: req.GetNews()}, nil
}

func (*server) DiffConfig(context.Context, *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	return &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_NONE}, nil
}

func (*server) Configure(context.Context, *pulumirpc.ConfigureRequest) (*pulumirpc.ConfigureResponse, error) {
	return &pulumirpc.ConfigureResponse{SupportsPreview: true}, nil
}

func (*server) Check(_ context.Context, req *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	return &pulumirpc.CheckResponse{Inputs: req.GetNews()}, nil
}

// Diff says that there is always something to do: whether an instance is up is for the instance to say, not for what is remembered of it.
func (*server) Diff(context.Context, *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	return &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_SOME}, nil
}

func (p *server) Create(ctx context.Context, req *pulumirpc.CreateRequest) (*pulumirpc.CreateResponse, error) {
	if !req.GetPreview() {
		if err := p.work(ctx, req.GetName(), p.up); err != nil {
			return nil, err
		}
	}
	return &pulumirpc.CreateResponse{Id: req.GetName(), Properties: req.GetProperties()}, nil
}

func (p *server) Read(_ context.Context, req *pulumirpc.ReadRequest) (*pulumirpc.ReadResponse, error) {
	return &pulumirpc.ReadResponse{Id: req.GetId(), Properties: req.GetProperties(), Inputs: req.GetInputs()}, nil
}

func (p *server) Update(ctx context.Context, req *pulumirpc.UpdateRequest) (*pulumirpc.UpdateResponse, error) {
	if !req.GetPreview() {
		if err := p.work(ctx, req.GetName(), p.up); err != nil {
			return nil, err
		}
	}
	return &pulumirpc.UpdateResponse{Properties: req.GetNews()}, nil
}

func (p *server) Delete(ctx context.Context, req *pulumirpc.DeleteRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, p.work(ctx, req.GetName(), p.down)
}

func (*server) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil // Pulumi is only ever told to end by labctl, which ends the work itself
}
