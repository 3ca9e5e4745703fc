package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// The common name and the organization of a hub's certificate. No agent gets one of that
// organization, and hubs' are signed by the CA that only gateways trust.
const (
	CommonName   = "atoll:hub"
	Organization = "atoll:hubs"
)

const (
	// redial is the pause between two calls.
	redial = 300 * time.Millisecond
	// dialTimeout of a connection, TLS included.
	dialTimeout = 5 * time.Second
	// keepaliveTime and keepaliveTimeout find a half-open link.
	keepaliveTime    = 5 * time.Second
	keepaliveTimeout = 4 * time.Second
	buffer           = 16 << 10
)

// checkPeerIsHub refuses peers that are not hubs. The server's credentials have the CA's verified
// certificate.
func checkPeerIsHub(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return status.Error(codes.Unauthenticated, errNotAHub.Error())
	}
	shown, ok := p.AuthInfo.(interface{ Subject() *pkix.Name })
	if !ok || shown.Subject() == nil {
		return status.Error(codes.Unauthenticated, errNotAHub.Error())
	}
	if s := shown.Subject(); s.CommonName != CommonName || !slices.Contains(s.Organization, Organization) {
		return status.Error(codes.PermissionDenied, errNotAHub.Error())
	}
	return nil
}

// dialHub dials another hub's gateway.
func dialHub(address string, config func(host string) *tls.Config) (*grpc.ClientConn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the address of a hub, %q, is not HOST:PORT: %w", address, err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(config(host))),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: dialTimeout}),
		grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, fmt.Errorf("dial the hub at %s: %w", address, err)
	}
	return conn, nil
}

// addressOf returns the address of a hub by its name.
func addressOf(name string) string {
	address, _, _ := strings.Cut(name, "_")
	return address
}
