package tunnel

import (
	"io"
	"net/http"
)

// IgnoreUpgradeWriteErrors makes an answer that upgrades its connection safe for a reverse proxy of
// net/http/httputil, as its ModifyResponse. Such a proxy ends both ways once one fails: a heartbeat
// of the client that a server does not take any more, since it has closed, would cost the client
// the rest of what the server wrote before. Other answers stay as they are.
func IgnoreUpgradeWriteErrors(r *http.Response) {
	if body, ok := r.Body.(io.ReadWriteCloser); ok && r.StatusCode == http.StatusSwitchingProtocols {
		r.Body = upgradedConn{body}
	}
}

// upgradedConn is the server's end of an upgraded connection.
type upgradedConn struct{ io.ReadWriteCloser }

// Write hands over what the server still takes. A refused write is no error: Read reports how the
// connection ends, after all that came.
func (u upgradedConn) Write(b []byte) (int, error) {
	_, _ = u.ReadWriteCloser.Write(b) // Read returns the reason
	return len(b), nil
}

// CloseWrite ends what is written to the server.
func (u upgradedConn) CloseWrite() error {
	if c, ok := u.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return http.ErrNotSupported
}
