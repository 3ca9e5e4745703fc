// Package listener opens the port that agents dial, and keeps the certificates by which a hub and
// its agents authenticate each other.
//
// Contract: Open returns an open port and a complete Trust, or an error and no open port. The data
// directory stores the chosen port, because agents dial it for as long as they live. When the
// hub's CAs change, Trust returns another value and Changed gets a signal. A failed renewal leaves
// the present certificate in use. Take and Close belong to one goroutine. All other methods are
// safe for concurrent use.
package listener

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"atoll.dev/atoll/internal/apiserver/keptport"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/delivery"
	"atoll.dev/atoll/internal/trust/standing"
)

// preferredPort is tried where no port is given and none was chosen before.
const preferredPort = 6444

// portFile in the data directory holds the chosen port.
const portFile = "gateway-port"

// Options of a Listener.
type Options struct {
	DataDir string
	// BindAddress of the port. Default: 127.0.0.1.
	BindAddress string
	// Port that agents dial. 0 takes the port of the last start, which must be free; at the
	// first start 6444 when it is free, else a free one.
	Port int
	// AdvertiseHost is the host under which other machines reach this hub.
	AdvertiseHost string
	// Address, HOST:PORT, is the address that agents dial; several by commas. Default:
	// AdvertiseHost and the open port.
	Address string
	// WebSocketBind is the HOST:PORT for load balancers; "" opens none.
	WebSocketBind string
	// ExtraSANs are further names and addresses in the serving certificate.
	ExtraSANs []string
	// CertificateLifetime of the serving certificate. Default: one year.
	CertificateLifetime time.Duration
	Logger              *slog.Logger
}

// Authorities are the hub's CAs.
type Authorities interface {
	CurrentAuthorities() *keys.Authorities
	// OnAuthorityChangeOrRenewal calls fn when the CAs change, or when what they signed must be renewed.
	OnAuthorityChangeOrRenewal(fn func())
}

// GatewayListener is the port that agents dial, with the certificates that identify this hub.
type GatewayListener struct {
	options     Options
	authorities Authorities
	listener    net.Listener
	webSockets  net.Listener // nil: load balancers have no port
	taken       bool         // another owner closes the listeners
	trust       atomic.Pointer[delivery.Trust]
	changed     chan struct{} // capacity 1
}

// Open opens the ports of the options, and issues the serving certificate.
func Open(o Options, a Authorities) (*GatewayListener, error) {
	o.BindAddress = cmp.Or(o.BindAddress, "127.0.0.1")
	l := &GatewayListener{options: o, authorities: a, changed: make(chan struct{}, 1)}
	var err error
	if l.listener, err = openPort(o); err != nil {
		return nil, err
	}
	if err := l.renewTrust(time.Now()); err != nil {
		l.Close()
		return nil, err
	}
	a.OnAuthorityChangeOrRenewal(l.handleCertificateChange)
	if o.WebSocketBind != "" {
		if l.webSockets, err = net.Listen("tcp", o.WebSocketBind); err != nil {
			l.Close()
			return nil, fmt.Errorf("--websocket-bind: %w", err)
		}
	}
	return l, nil
}

// openPort opens the port of the options, and stores the choice.
func openPort(o Options) (net.Listener, error) {
	l, err := keptport.OpenKeptPort(keptport.Options{
		BindAddress: o.BindAddress, Port: o.Port, Preferred: preferredPort,
		File: filepath.Join(o.DataDir, portFile), Flag: "--gateway-port",
	})
	if err != nil {
		return nil, fmt.Errorf("listen for agents: %w", err)
	}
	return l, nil
}

// TakeListener returns the listener to the goroutine that closes it. The taker closes the listener of load
// balancers, too.
func (l *GatewayListener) TakeListener() net.Listener {
	l.taken = true
	return l.listener
}

// WebSockets returns the listener of load balancers; nil means that there is none.
func (l *GatewayListener) WebSockets() net.Listener { return l.webSockets }

// Close closes the ports, unless they were taken.
func (l *GatewayListener) Close() {
	if l.taken {
		return
	}
	l.listener.Close()
	if l.webSockets != nil {
		l.webSockets.Close()
	}
}

// SelfAddress returns the HOST:PORT of this hub's gateway for other machines.
func (l *GatewayListener) SelfAddress() string { return l.addressAt(l.options.AdvertiseHost) }

// AdvertisedAddress returns the address that agents dial, maybe that of other hubs too.
func (l *GatewayListener) AdvertisedAddress() string {
	return cmp.Or(l.options.Address, l.SelfAddress())
}

// LocalAddress returns the address of the gateway for clients in its own process.
func (l *GatewayListener) LocalAddress() string {
	ip := net.ParseIP(l.options.BindAddress)
	switch {
	case ip == nil || !ip.IsUnspecified():
		return l.addressAt(l.options.BindAddress)
	case ip.To4() == nil:
		return l.addressAt("::1")
	}
	return l.addressAt("127.0.0.1")
}

func (l *GatewayListener) addressAt(host string) string {
	return net.JoinHostPort(host, strconv.Itoa(keptport.PortOf(l.listener)))
}

// Trust returns the certificates and CAs of the moment.
func (l *GatewayListener) Trust() *delivery.Trust { return l.trust.Load() }

// CertificateStatus returns what people see of the gateway's certificate.
func (l *GatewayListener) CertificateStatus() standing.Certificate {
	return standing.NewCertificate("gateway", l.trust.Load().Serving.Leaf, true)
}

// TrustChanged gets a signal after Trust has changed.
func (l *GatewayListener) TrustChanged() <-chan struct{} { return l.changed }

// PeerTLSConfig returns the configuration by which this hub dials the gateway of another hub.
func (l *GatewayListener) PeerTLSConfig(host string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host, RootCAs: l.authorities.CurrentAuthorities().ClusterCAPool(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return issuePeerCertificate(l.authorities.CurrentAuthorities().Agent, time.Now())
		},
	}
}
