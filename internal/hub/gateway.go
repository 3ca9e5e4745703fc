package hub

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/keys"
)

// preferredGatewayPort is tried where no port is given and none was chosen before.
const preferredGatewayPort = 6444

// door is where agents dial, and by what they know that it is this hub's.
type door struct {
	listener net.Listener
	plain    net.Listener // of load balancers; nil: there is none
	opened   bool         // the listener is somebody's, who closes it
	self     string       // HOST:PORT of this hub
	address  string       // what agents are told, maybe that of other hubs too
	// credentials are by what agents know the hub, and it them.
	credentials *credentials
}

// newDoor opens the port that the options ask for.
func newDoor(o Options, server *apiserver.Server) (*door, error) {
	listener, err := listenGateway(o)
	if err != nil {
		return nil, err
	}
	self := ownAddress(server, listener)
	d := &door{listener: listener, self: self, address: cmp.Or(o.GatewayAddress, self)}
	if d.credentials, err = newCredentials(o, server, d.self+","+d.address+","+d.here(bindAddress(o))); err != nil {
		listener.Close()
		return nil, err
	}
	if o.WebSocketBind != "" {
		if d.plain, err = net.Listen("tcp", o.WebSocketBind); err != nil {
			listener.Close()
			return nil, fmt.Errorf("--websocket-bind: %w", err)
		}
	}
	return d, nil
}

// open gives the listener to who closes it, as does the one of load balancers.
func (d *door) open() net.Listener {
	d.opened = true
	return d.listener
}

func (d *door) close() {
	if d.opened {
		return
	}
	d.listener.Close()
	if d.plain != nil {
		d.plain.Close()
	}
}

// listenGateway opens the port that the options ask for, and remembers the choice in
// the data directory, since agents dial it for as long as they live.
func listenGateway(o Options) (net.Listener, error) {
	path := filepath.Join(o.API.DataDir, "gateway-port")
	ports := []int{o.GatewayPort}
	if o.GatewayPort == 0 {
		ports = nil
		if raw, err := os.ReadFile(path); err == nil {
			if last, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil {
				ports = append(ports, last)
			}
		}
		ports = append(ports, preferredGatewayPort, 0)
	}
	var first error
	for _, port := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort(bindAddress(o), strconv.Itoa(port)))
		if err == nil {
			return l, os.WriteFile(path, []byte(strconv.Itoa(portOf(l))+"\n"), 0o600)
		}
		if first == nil {
			first = err
		}
	}
	return nil, fmt.Errorf("listen for agents: %w; choose another port with --gateway-port", first)
}

func bindAddress(o Options) string {
	if o.API.BindAddress == "" {
		return "127.0.0.1"
	}
	return o.API.BindAddress
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// ownAddress is where others reach this hub's gateway, as far as the hub knows.
func ownAddress(server *apiserver.Server, l net.Listener) string {
	return net.JoinHostPort(server.AdvertiseAddress(), strconv.Itoa(portOf(l)))
}

// servingCertificate of the gateway, with the chain to the CAs that agents pin.
func servingCertificate(o Options, a *keys.Authorities, address string, now time.Time) (tls.Certificate, error) {
	r := keys.Request{
		CommonName: "atoll-gateway", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: now, Lifetime: cmp.Or(o.API.CertificateLifetime, 365*24*time.Hour), DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	names := slices.Clone(o.API.ExtraSANs)
	for one := range strings.SplitSeq(address, ",") {
		host, _, err := net.SplitHostPort(one)
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("--gateway-address: %q is not HOST:PORT: %w", one, err)
		}
		names = append(names, host)
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			r.IPs = append(r.IPs, ip)
		} else {
			r.DNSNames = append(r.DNSNames, name)
		}
	}
	cert, key, err := a.Cluster.Issue(r)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue the gateway's certificate: %w", err)
	}
	return tls.X509KeyPair(append(cert, a.Chain()...), key)
}
