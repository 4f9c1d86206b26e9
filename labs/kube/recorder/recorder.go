// Package recorder stands between a learner's program and the Kubernetes API: it sees every request, and lets none through
// that would change something.
package recorder

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Request is one request that came in.
type Request struct {
	Method, Path string
	// Namespace and Resource are what the path names, empty where it names none.
	Namespace, Resource string
	// Write says that the request would change something if it were not a dry run; DryRun that the server was asked not to keep it.
	Write, DryRun bool
	// Status is the answer's code, 0 while there is none.
	Status int
	// Trouble says that the answer tells of the server's trouble, and nothing about what was asked.
	Trouble bool
}

func (r Request) String() string {
	s := r.Method + " " + r.Path
	if r.DryRun {
		s += " (dryRun)"
	}
	return s
}

// Upstream is the real API server. The zero value means that nothing is passed on.
type Upstream struct {
	URL string
	// CA is its certificate authority in PEM.
	CA []byte
}

// Recorder is a running server.
type Recorder struct {
	url      string
	ca       []byte
	server   *http.Server
	upstream Upstream
	proxy    *httputil.ReverseProxy

	mu       sync.Mutex
	requests []Request
	broken   error
}

// Start serves on a free loopback port until Close. Requests that would change something are refused; the others go to
// upstream with whatever login they bring, or are refused too where there is no upstream.
func Start(upstream Upstream) (*Recorder, error) {
	cert, ca, err := selfSigned(time.Now())
	if err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	r := &Recorder{url: "https://" + listener.Addr().String(), ca: ca, upstream: upstream}
	if upstream.URL != "" {
		if err := r.forward(); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
	}
	r.server = &http.Server{
		Handler: r, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(discard{}, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = r.server.ServeTLS(listener, "", "") }()
	return r, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func (r *Recorder) forward() error {
	target, err := url.Parse(r.upstream.URL)
	if err != nil {
		return fmt.Errorf("recorder: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(r.upstream.CA) {
		return errors.New("recorder: the API server's certificate authority cannot be read")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	r.proxy = &httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target); p.Out.Host = target.Host },
		Transport: transport, ErrorLog: log.New(discard{}, "", 0),
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			if req.Context().Err() == nil {
				r.mu.Lock()
				r.broken = errors.Join(r.broken, fmt.Errorf("pass a request on to the API server: %w", err))
				r.mu.Unlock()
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	seen := parse(req)
	r.mu.Lock()
	index := len(r.requests)
	r.requests = append(r.requests, seen)
	r.mu.Unlock()
	answer := &answer{ResponseWriter: w}
	if r.proxy == nil || seen.Write && !seen.DryRun {
		refuse(answer, seen)
	} else {
		r.proxy.ServeHTTP(answer, req)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if index < len(r.requests) {
		r.requests[index].Status, r.requests[index].Trouble = answer.status, answer.trouble()
	}
}

// answer remembers the status of what is written, and of a 500 what it says.
type answer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// trouble reports whether the server could not do what it was asked. A 500 is that only where it names a reason: for a manifest that
// does not fit its schema a server-side apply gets a 500 without one.
func (a *answer) trouble() bool {
	switch a.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusInternalServerError:
		var status metav1.Status
		return json.Unmarshal(a.body.Bytes(), &status) != nil || status.Reason != ""
	}
	return false
}

func (a *answer) WriteHeader(status int) { a.status = status; a.ResponseWriter.WriteHeader(status) }
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.status == http.StatusInternalServerError {
		a.body.Write(p)
	}
	return a.ResponseWriter.Write(p)
}
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func refuse(w http.ResponseWriter, seen Request) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden,
		Code: http.StatusForbidden, Message: "verify lets nothing through that would change the cluster: " + seen.String(),
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(status)
}

// reviews are resources that are asked by creating them; nothing is kept.
var reviews = []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews", "subjectaccessreviews", "localsubjectaccessreviews", "tokenreviews"}

func parse(req *http.Request) Request {
	seen := Request{Method: req.Method, Path: req.URL.Path}
	words := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case len(words) > 2 && words[0] == "api":
		words = words[2:]
	case len(words) > 3 && words[0] == "apis":
		words = words[3:]
	default:
		words = nil
	}
	if len(words) > 2 && words[0] == "namespaces" {
		seen.Namespace, words = words[1], words[2:]
	}
	if len(words) > 0 {
		seen.Resource = words[0]
	}
	read := req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == http.MethodOptions
	seen.Write = !read && !slices.Contains(reviews, seen.Resource)
	seen.DryRun = seen.Write && slices.Contains(req.URL.Query()["dryRun"], metav1.DryRunAll)
	return seen
}

// Requests are the requests since the last call of Take.
func (r *Recorder) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Take returns the requests since its last call, and why requests could not be passed on, if some could not.
func (r *Recorder) Take() ([]Request, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken, broken := r.requests, r.broken
	r.requests, r.broken = nil, nil
	return taken, broken
}

// Close ends the server.
func (r *Recorder) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		return r.server.Close()
	}
	return nil
}

// Redirect writes to dest a copy of the kubeconfig at source that leads to the recorder instead of its servers. All else, such as
// users and their tokens, stays.
func (r *Recorder) Redirect(source, dest string) error {
	config, err := clientcmd.LoadFromFile(source)
	if err != nil {
		return fmt.Errorf("recorder: read %s: %w", source, err)
	}
	for _, cluster := range config.Clusters {
		*cluster = clientcmdapi.Cluster{Server: r.url, CertificateAuthorityData: r.ca}
	}
	// Relative paths are relative to the file that holds them, and the copy takes that file's place.
	for _, user := range config.AuthInfos {
		if user.TokenFile != "" && !filepath.IsAbs(user.TokenFile) {
			user.TokenFile = filepath.Join(filepath.Dir(source), user.TokenFile)
		}
	}
	return r.write(config, dest)
}

// Stub writes to dest a kubeconfig that leads to the recorder and holds no login.
func (r *Recorder) Stub(dest string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["verify"] = &clientcmdapi.Cluster{Server: r.url, CertificateAuthorityData: r.ca}
	config.AuthInfos["verify"] = &clientcmdapi.AuthInfo{Token: "verify"}
	config.Contexts["verify"] = &clientcmdapi.Context{Cluster: "verify", AuthInfo: "verify"}
	config.CurrentContext = "verify"
	return r.write(config, dest)
}

func (r *Recorder) write(config *clientcmdapi.Config, dest string) error {
	if err := clientcmd.WriteToFile(*config, dest); err != nil {
		return fmt.Errorf("recorder: write %s: %w", dest, err)
	}
	return nil
}

// selfSigned makes a certificate for 127.0.0.1 that is its own authority.
func selfSigned(now time.Time) (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "labctl verify"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(24 * time.Hour), // the guest's clock may be stepped
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
