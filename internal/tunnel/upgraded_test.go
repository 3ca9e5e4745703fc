package tunnel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"
)

// TestTheRestOfAnUpgradedConnectionArrives: a client that writes to a server which has closed
// still gets all that the server wrote before.
func TestTheRestOfAnUpgradedConnectionArrives(t *testing.T) {
	rest := bytes.Repeat([]byte("the rest "), 1<<10)
	refused := make(chan struct{})
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {},
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Request: r,
				Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
				Body:   &closedServer{rest: bytes.NewReader(rest), refused: refused},
			}, nil
		}),
		ModifyResponse: func(r *http.Response) error { IgnoreUpgradeWriteErrors(r); return nil },
	})
	defer proxy.Close()

	conn, err := net.Dial("tcp", proxy.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: server\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(conn)
	if answer, err := http.ReadResponse(in, nil); err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade: %v, %v", answer, err)
	}
	fmt.Fprint(conn, "a heartbeat")
	if got, err := io.ReadAll(in); err != nil || !bytes.Equal(got, rest) {
		t.Errorf("%d bytes arrived of %d (%v)", len(got), len(rest), err)
	}
}

// TestOtherAnswersAreNotTouched: only an upgrade is.
func TestOtherAnswersAreNotTouched(t *testing.T) {
	body := &closedServer{}
	r := &http.Response{StatusCode: http.StatusOK, Body: body}
	if IgnoreUpgradeWriteErrors(r); r.Body != body {
		t.Error("the body of an ordinary answer was replaced")
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// closedServer takes no more writes. Its last words can be read once a write was refused.
type closedServer struct {
	rest    io.Reader
	refused chan struct{}
}

func (s *closedServer) Read(b []byte) (int, error) {
	<-s.refused
	return s.rest.Read(b)
}

func (s *closedServer) Write([]byte) (int, error) {
	defer close(s.refused)
	return 0, errors.New("broken pipe")
}

func (s *closedServer) Close() error { return nil }
