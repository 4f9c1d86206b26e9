package kube

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is what a kubeconfig file comes to when it is used as it stands.
type Kubeconfig struct {
	// Context is the current context; Server and Namespace are what it leads to (namespace "default" where none is set).
	Context, Server, Namespace string
	// Token is the current user's bearer token, also where it stands in a file of its own.
	Token string
	// SkipsTLS says that the server's certificate is not verified.
	SkipsTLS bool
	// Other are the ways to log in besides a token that the file holds, for any of its users, such as "client certificate".
	Other []string

	path string
}

// KubeconfigError says that a file cannot be used as a kubeconfig.
type KubeconfigError struct {
	Path string
	Err  error
}

func (e *KubeconfigError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Err) }
func (e *KubeconfigError) Unwrap() error { return e.Err }

// ReadKubeconfig reads a kubeconfig. It returns *KubeconfigError where the file is there but is no usable kubeconfig, and
// an error that is os.ErrNotExist where it is not.
func ReadKubeconfig(path string) (*Kubeconfig, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, &KubeconfigError{path, err}
	}
	current, ok := config.Contexts[config.CurrentContext]
	switch {
	case config.CurrentContext == "":
		return nil, &KubeconfigError{path, errors.New("no current-context is set")}
	case !ok:
		return nil, &KubeconfigError{path, fmt.Errorf("the current context %q is not in the file", config.CurrentContext)}
	case config.Clusters[current.Cluster] == nil:
		return nil, &KubeconfigError{path, fmt.Errorf("context %q names a cluster %q that is not in the file", config.CurrentContext, current.Cluster)}
	case config.AuthInfos[current.AuthInfo] == nil:
		return nil, &KubeconfigError{path, fmt.Errorf("context %q names a user %q that is not in the file", config.CurrentContext, current.AuthInfo)}
	}
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	k := &Kubeconfig{Context: config.CurrentContext, Server: cluster.Server, Namespace: current.Namespace, Token: user.Token, SkipsTLS: cluster.InsecureSkipTLSVerify, path: path}
	if k.Namespace == "" {
		k.Namespace = metav1.NamespaceDefault
	}
	if user.TokenFile != "" {
		file := user.TokenFile
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(path), file)
		}
		token, err := os.ReadFile(file)
		if err != nil {
			return nil, &KubeconfigError{path, fmt.Errorf("read its token file: %w", err)}
		}
		k.Token = strings.TrimSpace(string(token))
	}
	for _, u := range config.AuthInfos {
		k.Other = append(k.Other, logins(u)...)
	}
	return k, nil
}

func logins(u *clientcmdapi.AuthInfo) (ways []string) {
	for way, has := range map[string]bool{
		"client certificate": u.ClientCertificate != "" || len(u.ClientCertificateData) > 0 || u.ClientKey != "" || len(u.ClientKeyData) > 0,
		"password":           u.Username != "" || u.Password != "",
		"login command":      u.Exec != nil || u.AuthProvider != nil,
		"impersonation":      u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0,
	} {
		if has {
			ways = append(ways, way)
		}
	}
	return ways
}

// SameServer reports whether two API server addresses are the same.
func SameServer(a, b string) bool { return serverAddress(a) == serverAddress(b) }

func serverAddress(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return s
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return strings.ToLower(u.Scheme+"://"+u.Hostname()) + ":" + port + strings.TrimSuffix(u.Path, "/")
}

// Refusal is why a kubeconfig does not get in.
type Refusal string

// The refusals.
const (
	// BadCertificate: the kubeconfig's certificate authority is not the server's.
	BadCertificate Refusal = "certificate"
	// BadToken: the server does not know the token, or not any more.
	BadToken Refusal = "token"
	// NoServer: nothing answers at the kubeconfig's address.
	NoServer Refusal = "server"
)

// WhoAmI asks the server that the kubeconfig leads to who its user is. A refusal is an answer; its text is in why.
func (k *Kubeconfig) WhoAmI(ctx context.Context) (user string, refusal Refusal, why string, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", k.path)
	if err != nil {
		return "", "", "", &KubeconfigError{k.path, err}
	}
	client, err := open(config)
	if err != nil {
		return "", BadCertificate, err.Error(), nil
	}
	review, err := client.api.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return review.Status.UserInfo.Username, "", "", nil
	case ctx.Err() != nil:
		return "", "", "", &Error{Doing: "log in with " + k.path, Err: context.Cause(ctx)}
	case errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid):
		return "", BadCertificate, err.Error(), nil
	case unauthorized(err):
		return "", BadToken, err.Error(), nil
	case statusOf(err) != 0:
		// It answered something else: the cluster's trouble.
		return "", "", "", &Error{Doing: "log in with " + k.path, Err: err}
	}
	return "", NoServer, err.Error(), nil
}

// Claims are what a ServiceAccount's token says of itself. Nothing of it has been verified.
type Claims struct {
	Subject string
	// Issued and Expires are zero where the token does not say, as for a Secret-bound one.
	Issued, Expires time.Time
}

// ReadToken reads a token's claims.
func ReadToken(token string) (Claims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Claims{}, errors.New("it has not the form of a ServiceAccount token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Claims{}, fmt.Errorf("it has not the form of a ServiceAccount token: %w", err)
	}
	var claims struct {
		Sub string  `json:"sub"`
		Iat float64 `json:"iat"`
		Exp float64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return Claims{}, fmt.Errorf("it has not the form of a ServiceAccount token: %w", err)
	}
	c := Claims{Subject: claims.Sub}
	if claims.Iat != 0 {
		c.Issued = time.Unix(int64(claims.Iat), 0).UTC()
	}
	if claims.Exp != 0 {
		c.Expires = time.Unix(int64(claims.Exp), 0).UTC()
	}
	return c, nil
}
