package link

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpproxy"

	"atoll.dev/atoll/internal/tunnel"
)

const (
	// dialTimeout of TCP; a third try of the kernel falls into it.
	dialTimeout = 3500 * time.Millisecond
	// proxyTimeout of what a proxy takes to reach the hub.
	proxyTimeout = 10 * time.Second
	// maxProxyAnswer bounds the answer of a proxy to CONNECT, in bytes.
	maxProxyAnswer = 64 << 10
)

// dialTCPOrProxy returns a connection to the hub: through the proxy that the environment names for
// its address (HTTPS_PROXY, NO_PROXY and their like, as everywhere), else directly. It
// gives up early: a host that cannot be reached does not answer later.
func dialTCPOrProxy(ctx context.Context, address string) (net.Conn, error) {
	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: "https", Host: address})
	if err != nil {
		return nil, fmt.Errorf("the proxy that the environment names for %s: %w", address, err)
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: -1}
	if proxy == nil {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			tunnel.LimitUnsent(conn)
		}
		return conn, err
	}
	conn, err := dialThroughProxy(ctx, dialer, proxy, address)
	if err != nil {
		return nil, fmt.Errorf("through the proxy %s, which the environment names: %w", proxy.Redacted(), err)
	}
	return conn, nil
}

// dialThroughProxy dials through a proxy, by CONNECT.
func dialThroughProxy(ctx context.Context, dialer *net.Dialer, proxy *url.URL, address string) (net.Conn, error) {
	port := proxy.Port()
	switch {
	case proxy.Scheme != "http" && proxy.Scheme != "https":
		return nil, errors.New("it is of a kind that agents do not speak; http and https are those that they do")
	case port == "" && proxy.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(proxy.Hostname(), port))
	if err != nil {
		return nil, err
	}
	tunnel.LimitUnsent(conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // a connection that takes none is closed
	asked, err := connectProxy(conn, proxy, address)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close() // nothing was sent on it
		return nil, err
	}
	return asked, nil
}

// connectProxy sends the CONNECT request for the address to the proxy.
func connectProxy(conn net.Conn, proxy *url.URL, address string) (net.Conn, error) {
	if err := conn.SetDeadline(time.Now().Add(proxyTimeout)); err != nil {
		return nil, err
	}
	if proxy.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: proxy.Hostname()})
	}
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if u := proxy.User; u != nil {
		password, _ := u.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)))
	}
	if err := r.Write(conn); err != nil {
		return nil, err
	}
	// The bytes after the answer are the hub's, which sends nothing before a request: the reader
	// holds nothing that would be lost.
	answer, err := http.ReadResponse(bufio.NewReaderSize(io.LimitReader(conn, maxProxyAnswer), 4<<10), r)
	if err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %q; %s", answer.Status, proxyStatusHint(answer.StatusCode))
	}
	return conn, conn.SetDeadline(time.Time{})
}

// proxyStatusHint names the person that must act.
func proxyStatusHint(code int) string {
	switch code {
	case http.StatusProxyAuthRequired:
		return "give it a name and a password in the URL, or leave the hub out by NO_PROXY"
	case http.StatusForbidden, http.StatusMethodNotAllowed:
		return "let it connect to the hub's address, or leave the hub out by NO_PROXY"
	}
	return "can it reach the hub?"
}
