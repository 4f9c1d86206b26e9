package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	caValid   = 10 * 365 * 24 * time.Hour
	leafValid = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced at a start, as k3s does.
	renewBefore = 90 * 24 * time.Hour
)

// pair is a certificate and its key, as PEM files.
type pair struct{ crt, key string }

type pki struct {
	serverCA, clientCA, frontProxyCA, requestClient           pair
	apiServer, kubeletServer, apiToKubelet                    pair
	admin, controllerManager, scheduler, kubelet, proxyClient pair
	serviceKey                                                string
}

func ensurePKI(cfg config, now time.Time) (*pki, error) {
	files := func(name string) pair {
		return pair{filepath.Join(cfg.tlsDir(), name+".crt"), filepath.Join(cfg.tlsDir(), name+".key")}
	}
	p := &pki{
		serverCA: files("server-ca"), clientCA: files("client-ca"), frontProxyCA: files("request-header-ca"), requestClient: files("client-auth-proxy"),
		apiServer: files("serving-kube-apiserver"), kubeletServer: files("serving-kubelet"), apiToKubelet: files("client-kube-apiserver"),
		admin: files("client-admin"), controllerManager: files("client-controller"), scheduler: files("client-scheduler"),
		kubelet: files("client-kubelet"), proxyClient: files("client-kube-proxy"),
		serviceKey: filepath.Join(cfg.tlsDir(), "service.key"),
	}
	for _, ca := range []pair{p.serverCA, p.clientCA, p.frontProxyCA} {
		if err := ensureCA(ca, now); err != nil {
			return nil, err
		}
	}
	_, services, err := net.ParseCIDR(cfg.ServiceCIDR)
	if err != nil {
		return nil, err
	}
	apiIP := append(net.IP{}, services.IP.To4()...)
	apiIP[3]++
	names := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + cfg.ClusterDomain, "localhost", cfg.NodeName, "127.0.0.1", cfg.NodeIP, apiIP.String()}, cfg.TLSSAN...)
	leaves := []struct {
		ca, leaf pair
		cn       string
		orgs     []string
		names    []string // set for a serving certificate
	}{
		{p.serverCA, p.apiServer, "kube-apiserver", nil, names},
		{p.serverCA, p.kubeletServer, cfg.NodeName, nil, []string{cfg.NodeName, "localhost", "127.0.0.1", cfg.NodeIP}},
		{p.clientCA, p.apiToKubelet, "system:kube-apiserver", []string{"system:masters"}, nil},
		{p.clientCA, p.admin, "system:admin", []string{"system:masters"}, nil},
		{p.clientCA, p.controllerManager, "system:kube-controller-manager", nil, nil},
		{p.clientCA, p.scheduler, "system:kube-scheduler", nil, nil},
		{p.clientCA, p.kubelet, "system:node:" + cfg.NodeName, []string{"system:nodes"}, nil},
		{p.clientCA, p.proxyClient, "system:kube-proxy", nil, nil},
		{p.frontProxyCA, p.requestClient, "system:auth-proxy", nil, nil},
	}
	for _, l := range leaves {
		if err := ensureLeaf(l.ca, l.leaf, l.cn, l.orgs, l.names, now); err != nil {
			return nil, fmt.Errorf("%s: %w", l.leaf.crt, err)
		}
	}
	if _, _, err := ensureKey(p.serviceKey); err != nil {
		return nil, err
	}
	return p, nil
}

// ensureKey loads the key at path or makes one; fresh says which.
func ensureKey(path string) (key crypto.Signer, fresh bool, err error) {
	if loaded, err := keyutil.PrivateKeyFromFile(path); err == nil {
		return loaded.(crypto.Signer), false, nil
	} else if !errors.Is(err, os.ErrNotExist) && !os.IsNotExist(err) {
		if _, statErr := os.Stat(path); statErr == nil {
			return nil, false, err
		}
	}
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, false, err
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(made)
	if err != nil {
		return nil, false, err
	}
	return made, true, keyutil.WriteKey(path, pem)
}

func ensureCA(ca pair, now time.Time) error {
	key, fresh, err := ensureKey(ca.key)
	if err != nil {
		return err
	}
	if _, err := os.Stat(ca.crt); err == nil && !fresh {
		return nil
	}
	// An hour of slack, so that a guest whose clock is a little behind still accepts it.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: fmt.Sprintf("k3s-%s@%d", filepath.Base(ca.key[:len(ca.key)-4]), now.Unix())},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(caValid),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	return writeCert(ca.crt, der)
}

func ensureLeaf(ca, leaf pair, cn string, orgs, names []string, now time.Time) error {
	key, fresh, err := ensureKey(leaf.key)
	if err != nil {
		return err
	}
	caCerts, err := cert.CertsFromFile(ca.crt)
	if err != nil {
		return err
	}
	if !fresh {
		if old, err := cert.CertsFromFile(leaf.crt); err == nil && old[0].NotAfter.Sub(now) > renewBefore && old[0].CheckSignatureFrom(caCerts[0]) == nil {
			return nil
		}
	}
	caKey, _, err := ensureKey(ca.key)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: cn, Organization: orgs},
		NotBefore: caCerts[0].NotBefore, NotAfter: now.Add(leafValid),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, caCerts[0], key.Public(), caKey)
	if err != nil {
		return err
	}
	return writeCert(leaf.crt, der)
}

func writeCert(path string, der []byte) error {
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	pem, err := cert.EncodeCertificates(parsed)
	if err != nil {
		return err
	}
	return cert.WriteCert(path, pem)
}

func (c config) kubeconfig(name string) string {
	return filepath.Join(c.credDir(), name+".kubeconfig")
}

const apiURL = "https://127.0.0.1:6443"

func writeKubeconfigs(cfg config, p *pki) error {
	ca, err := os.ReadFile(p.serverCA.crt)
	if err != nil {
		return err
	}
	write := func(path string, client pair, embed bool) error {
		user := &clientcmdapi.AuthInfo{ClientCertificate: client.crt, ClientKey: client.key}
		if embed {
			user = &clientcmdapi.AuthInfo{}
			if user.ClientCertificateData, err = os.ReadFile(client.crt); err != nil {
				return err
			}
			if user.ClientKeyData, err = os.ReadFile(client.key); err != nil {
				return err
			}
		}
		return clientcmd.WriteToFile(clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{"default": {Server: apiURL, CertificateAuthorityData: ca}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default": user},
			Contexts:       map[string]*clientcmdapi.Context{"default": {Cluster: "default", AuthInfo: "default"}},
			CurrentContext: "default",
		}, path)
	}
	for name, client := range map[string]pair{"controller": p.controllerManager, "scheduler": p.scheduler, "kubelet": p.kubelet, "kube-proxy": p.proxyClient} {
		if err := write(cfg.kubeconfig(name), client, false); err != nil {
			return err
		}
	}
	if err := write(kubeconfigPath, p.admin, true); err != nil {
		return err
	}
	var mode uint32
	if _, err := fmt.Sscanf(cfg.WriteKubeconfigMode, "%o", &mode); err != nil {
		return err
	}
	return os.Chmod(kubeconfigPath, os.FileMode(mode))
}
