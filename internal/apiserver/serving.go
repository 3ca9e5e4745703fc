package apiserver

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/cli/flag"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"atoll.dev/atoll/internal/apiserver/datadir"
	"atoll.dev/atoll/internal/apiserver/keptport"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/trust/standing"
)

const (
	// renewals of a certificate in its life; one that fails is tried again after renewAgain.
	renewals   = 12
	renewAgain = time.Hour
	// adminLifetime of the certificate in the administrator's kubeconfig.
	adminLifetime  = 365 * 24 * time.Hour
	adminUser      = "atoll-admin"
	adminGroup     = "system:masters"
	kubeconfigFile = "hub.kubeconfig"
	portFile       = "port"
	// servingFile and frontProxyFile hold a certificate and its key each, so that a reader never
	// sees one without the other.
	servingFile    = "serving.pem"
	frontProxyFile = "front-proxy-client.pem"
	// clientCAFile holds the CAs of clients' certificates, which may be two.
	clientCAFile  = "client-ca.crt"
	preferredPort = 6443
	// innerName is the name that the hub's own certificate answers to, also
	// beside a serving certificate of the operator's.
	innerName = "hub.atoll.internal"
)

// openListener opens the port of the options, and stores the choice.
func (s *Server) openListener() (net.Listener, error) {
	return keptport.OpenKeptPort(keptport.Options{
		BindAddress: s.options.BindAddress, Port: s.options.Port, Preferred: preferredPort,
		File: s.dir.FilePath(portFile), Flag: "--port",
	})
}

// setServingCert lets the operator's certificate serve, or the hub's own. The
// hub's own always answers to its inner name, which the kubeconfig uses.
func (s *Server) setServingCert(o *kubeapiserver.ServerRunOptions) {
	own := flag.NamedCertKey{Names: []string{innerName}, CertFile: s.dir.FilePath(servingFile), KeyFile: s.dir.FilePath(servingFile)}
	serving := &o.SecureServing.ServerCert.CertKey
	serving.CertFile, serving.KeyFile = own.CertFile, own.KeyFile
	if s.options.ServingCert != "" {
		serving.CertFile, serving.KeyFile = s.options.ServingCert, s.options.ServingKey
		o.SecureServing.SNICertKeys = []flag.NamedCertKey{own}
	}
}

// writeCertificates issues every certificate that the server itself holds and
// writes it to the file where the server, or its user, finds it. The server
// reads the files again when they change.
func (s *Server) writeCertificates(now time.Time) error {
	a := s.CurrentAuthorities()
	if err := datadir.WriteFileAtomically(s.dir.FilePath(clientCAFile), a.ClusterCABundlePEM(), 0o600); err != nil {
		return err
	}
	serving := s.servingCertificateRequest()
	serving.NotBefore = now
	if err := s.writeCertificateAndKey(a.Cluster, serving, a.ChainPEM(), servingFile); err != nil {
		return err
	}
	proxy := keys.Request{CommonName: frontProxyUser, NotBefore: now, Lifetime: s.options.CertificateLifetime}
	if err := s.writeCertificateAndKey(s.keys.FrontProxyCA, proxy, nil, frontProxyFile); err != nil {
		return err
	}
	return s.writeAdminKubeconfig(a, now)
}

// writeCertificateAndKey writes a new certificate, with the chain that follows it, and its key.
func (s *Server) writeCertificateAndKey(authority *keys.Authority, r keys.Request, chain []byte, file string) error {
	cert, key, err := authority.IssueCertificate(r)
	if err != nil {
		return err
	}
	return datadir.WriteFileAtomically(s.dir.FilePath(file), slices.Concat(cert, chain, key), 0o600)
}

// runCertificateRenewal writes new certificates long before the old ones end.
func (s *Server) runCertificateRenewal(ctx context.Context) {
	every := s.options.CertificateLifetime / renewals
	for wait := every; ; {
		if !pause.WaitFor(ctx, wait) {
			return
		}
		s.authorities.mu.Lock()
		err := s.renewServingCertificates(time.Now())
		s.authorities.mu.Unlock()
		if wait = every; err != nil {
			wait = min(every, renewAgain)
			s.options.Logger.Error("could not renew the hub's certificates; it will be tried again", "after", wait, "error", err)
		}
	}
}

// ListCertificates returns the hub's CAs and the certificates that the API server shows now. A
// certificate that cannot be read is left out. The API server then uses the one that it has read
// before.
func (s *Server) ListCertificates() []standing.Certificate {
	a, front := s.CurrentAuthorities(), s.keys.FrontProxyCA.Cert
	out := []standing.Certificate{
		standing.NewCertificate("cluster CA", a.Cluster.Cert, false),
		standing.NewCertificate("agent CA", a.Agent.Cert, false),
		standing.NewCertificate("front proxy CA", front, false),
	}
	for _, c := range []struct {
		name, path string
		own        bool
	}{{"API", s.dir.FilePath(servingFile), true}, {"API, of --tls-cert-file", s.options.ServingCert, false}} {
		if c.path == "" {
			continue
		}
		content, err := os.ReadFile(c.path)
		if err != nil {
			continue
		}
		block, _ := pem.Decode(content)
		if block == nil {
			continue
		}
		if leaf, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, standing.NewCertificate(c.name, leaf, c.own))
		}
	}
	return out
}

func (s *Server) servingCertificateRequest() keys.Request {
	names := []string{innerName, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	for _, san := range append([]string{s.options.BindAddress, s.options.AdvertiseAddress}, s.options.ExtraSANs...) {
		if ip := net.ParseIP(san); ip == nil {
			names = append(names, san)
		} else if !ip.IsUnspecified() {
			ips = append(ips, ip)
		}
	}
	return keys.Request{
		CommonName: "atoll-hub",
		DNSNames:   names,
		IPs:        ips,
		Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		Lifetime:   s.options.CertificateLifetime,
	}
}

// writeAdminKubeconfig writes an administrator's credentials with a new client
// certificate.
func (s *Server) writeAdminKubeconfig(a *keys.Authorities, now time.Time) error {
	cert, key, err := a.Cluster.IssueCertificate(keys.Request{
		CommonName: adminUser, Organization: []string{adminGroup}, NotBefore: now, Lifetime: adminLifetime,
	})
	if err != nil {
		return err
	}
	const name = "atoll-hub"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   "https://" + s.address,
		CertificateAuthorityData: a.ClusterCABundlePEM(),
	}
	if s.options.ServingCert != "" {
		config.Clusters[name].TLSServerName = innerName
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode %s: %w", s.kubeconfig, err)
	}
	return datadir.WriteFileAtomically(s.kubeconfig, content, 0o600)
}

// reachableHost is the host under which this machine reaches a listener.
func reachableHost(bindAddress string) string {
	ip := net.ParseIP(bindAddress)
	switch {
	case !ip.IsUnspecified():
		return bindAddress
	case ip.To4() == nil:
		return "::1"
	default:
		return "127.0.0.1"
	}
}

// defaultAdvertiseAddress is the first global address of this machine when the
// server listens on all of them.
func defaultAdvertiseAddress(bindAddress string) string {
	if ip := net.ParseIP(bindAddress); ip != nil && !ip.IsUnspecified() {
		return bindAddress
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return reachableHost(bindAddress)
	}
	for _, addr := range addrs {
		if n, ok := addr.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return reachableHost(bindAddress)
}
