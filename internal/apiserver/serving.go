package apiserver

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/cli/flag"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"atoll.dev/atoll/internal/apiserver/datadir"
	"atoll.dev/atoll/internal/apiserver/keys"
)

const (
	certLifetime       = 365 * 24 * time.Hour
	renewEvery         = 30 * 24 * time.Hour
	adminUser          = "atoll-admin"
	adminGroup         = "system:masters"
	kubeconfigFile     = "hub.kubeconfig"
	portFile           = "port"
	servingCertFile    = "serving.crt"
	servingKeyFile     = "serving.key"
	frontProxyCertFile = "front-proxy-client.crt"
	frontProxyKeyFile  = "front-proxy-client.key"
	preferredPort      = 6443
	// innerName is the name that the hub's own certificate answers to, also
	// beside a serving certificate of the operator's.
	innerName = "hub.atoll.internal"
)

// listen opens the port that the options ask for, and remembers the choice.
func (s *Server) listen() (net.Listener, error) {
	ports := []int{s.options.Port}
	if s.options.Port == 0 {
		ports = nil
		if content, err := os.ReadFile(s.dir.Path(portFile)); err == nil {
			if last, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil {
				ports = append(ports, last)
			}
		}
		ports = append(ports, preferredPort, 0)
	}
	var firstErr error
	for _, port := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort(s.options.BindAddress, strconv.Itoa(port)))
		if err == nil {
			chosen := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
			return l, datadir.WriteFile(s.dir.Path(portFile), []byte(chosen+"\n"), 0o600)
		}
		if firstErr == nil {
			firstErr = err
		}
	}
	return nil, fmt.Errorf("listen on port %d: %w", s.options.Port, firstErr)
}

// setServingCert lets the operator's certificate serve, or the hub's own. The
// hub's own always answers to its inner name, which the kubeconfig asks for.
func (s *Server) setServingCert(o *kubeapiserver.ServerRunOptions) {
	own := flag.NamedCertKey{Names: []string{innerName}, CertFile: s.dir.Path(servingCertFile), KeyFile: s.dir.Path(servingKeyFile)}
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
	serving := s.servingRequest()
	serving.NotBefore = now
	if err := s.writePair(s.keys.ClusterCA, serving, servingCertFile, servingKeyFile); err != nil {
		return err
	}
	proxy := keys.Request{CommonName: frontProxyUser, NotBefore: now, Lifetime: certLifetime}
	if err := s.writePair(s.keys.FrontProxyCA, proxy, frontProxyCertFile, frontProxyKeyFile); err != nil {
		return err
	}
	return s.writeKubeconfig(now)
}

func (s *Server) writePair(authority *keys.Authority, r keys.Request, certFile, keyFile string) error {
	cert, key, err := authority.Issue(r)
	if err != nil {
		return err
	}
	if err := datadir.WriteFile(s.dir.Path(keyFile), key, 0o600); err != nil {
		return err
	}
	return datadir.WriteFile(s.dir.Path(certFile), cert, 0o600)
}

// renewCertificates writes new certificates long before the old ones end.
func (s *Server) renewCertificates(ctx context.Context) {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if err := s.writeCertificates(now); err != nil {
				s.options.Logger.Error("could not renew the hub's certificates; it will be tried again", "after", renewEvery, "error", err)
			}
		}
	}
}

func (s *Server) servingRequest() keys.Request {
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
		Lifetime:   certLifetime,
	}
}

// writeKubeconfig writes an administrator's credentials with a new client
// certificate.
func (s *Server) writeKubeconfig(now time.Time) error {
	cert, key, err := s.keys.ClusterCA.Issue(keys.Request{
		CommonName: adminUser, Organization: []string{adminGroup}, NotBefore: now, Lifetime: certLifetime,
	})
	if err != nil {
		return err
	}
	const name = "atoll-hub"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   "https://" + s.address,
		CertificateAuthorityData: s.keys.ClusterCA.CertPEM,
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
	return datadir.WriteFile(s.kubeconfig, content, 0o600)
}

// reachable is the host under which this machine reaches a listener.
func reachable(bindAddress string) string {
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
		return reachable(bindAddress)
	}
	for _, addr := range addrs {
		if n, ok := addr.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return reachable(bindAddress)
}
