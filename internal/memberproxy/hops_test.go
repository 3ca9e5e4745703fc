package memberproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// startHops gives hops to a server, and how many connections they have made.
func startHops(t *testing.T, agent http.Handler) (*lowMemoryReadTransport, *httptest.Server, *atomic.Int64) {
	t.Helper()
	server := httptest.NewServer(agent)
	t.Cleanup(server.Close)
	made := &atomic.Int64{}
	h := &lowMemoryReadTransport{others: http.DefaultTransport, dial: func(ctx context.Context, _ string) (net.Conn, error) {
		made.Add(1)
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}}
	t.Cleanup(h.CloseIdleConnections)
	return h, server, made
}

func hopTo(ctx context.Context, t *testing.T, h *lowMemoryReadTransport, method, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://uid"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := h.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

// TestAnswersComeWhole, of whatever kind, and a connection carries the next request when one
// was read to its end, and only then.
func TestAnswersComeWhole(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 20<<10)
	h, server, made := startHops(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/length":
			w.Header().Set("Content-Length", fmt.Sprint(len(long)))
			_, _ = io.WriteString(w, long)
		case "/pieces":
			for at := 0; at < len(long); at += 10_000 {
				_, _ = io.WriteString(w, long[at:min(at+10_000, len(long))])
				_ = http.NewResponseController(w).Flush()
			}
		case "/until-closed":
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, long)
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, long)
		}
	}))
	for i, c := range []struct {
		method, path string
		conns        int64 // made so far
		copied       bool
	}{
		{"GET", "/length", 1, false}, {"GET", "/pieces", 1, true}, {"GET", "/pieces", 1, false}, {"HEAD", "/length", 1, false}, {"GET", "/none", 1, true},
		{"GET", "/early", 1, true}, {"GET", "/until-closed", 1, true}, {"GET", "/length", 2, true},
	} {
		answer := hopTo(t.Context(), t, h, c.method, c.path)
		var got strings.Builder
		var err error
		if c.copied {
			_, err = io.Copy(&got, answer.Body)
		} else {
			var b []byte
			b, err = io.ReadAll(answer.Body)
			got.Write(b)
		}
		want := long
		if c.method == "HEAD" || c.path == "/none" {
			want = ""
		}
		if err != nil || got.String() != want {
			t.Errorf("%d, %s %s: %d bytes, %v; wanted %d", i, c.method, c.path, got.Len(), err, len(want))
		}
		answer.Body.Close()
		if n := made.Load(); n != c.conns {
			t.Errorf("%d, %s %s: by the connection number %d, not %d", i, c.method, c.path, n, c.conns)
		}
	}
	hopTo(t.Context(), t, h, "GET", "/length").Body.Close() // unread
	hopTo(t.Context(), t, h, "HEAD", "/length").Body.Close()
	if n := made.Load(); n != 3 {
		t.Errorf("%d connections, where one had an unread answer", n)
	}
	server.CloseClientConnections() // while it waits for a request
	if answer := hopTo(t.Context(), t, h, "GET", "/none"); answer.StatusCode != http.StatusNoContent {
		t.Errorf("after the agent has closed a connection: %s", answer.Status)
	}
}

// TestAnswersEndWithTheirRequests: the client has gone, and with it the connection.
func TestAnswersEndWithTheirRequests(t *testing.T) {
	gone := make(chan struct{})
	h, _, _ := startHops(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	answer := hopTo(ctx, t, h, "GET", "/")
	cancel()
	if n, err := answer.Body.Read(make([]byte, 1)); err == nil || n > 0 {
		t.Errorf("read %d, %v", n, err)
	}
	<-gone
	if answer.Body.Close(); len(h.idle) > 0 {
		t.Errorf("it is kept: %v", h.idle)
	}
}

// TestWaitingCostsNoGoroutinesAndNoBuffers: a thousand wait for logs of which nothing comes.
func TestWaitingCostsNoGoroutinesAndNoBuffers(t *testing.T) {
	const many = 50
	release := make(chan struct{})
	h, _, _ := startHops(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun\n")
		_ = http.NewResponseController(w).Flush()
		<-release
		_, _ = io.WriteString(w, "ended\n")
	}))
	var following sync.WaitGroup
	lines := make(chan string, many)
	for range many {
		answer := hopTo(t.Context(), t, h, "GET", "/")
		following.Go(func() {
			defer answer.Body.Close()
			in, out := io.Pipe()
			following.Go(func() {
				scanner := bufio.NewScanner(in)
				for scanner.Scan() {
					lines <- scanner.Text()
				}
			})
			_, _ = io.Copy(out, answer.Body)
			out.Close()
		})
	}
	for range many {
		if line := <-lines; line != "begun" {
			t.Errorf("at first: %q", line)
		}
	}
	all := make([]byte, 4<<20)
	stacks := string(all[:runtime.Stack(all, true)])
	if n := strings.Count(stacks, "persistConn"); n > 0 {
		t.Errorf("%d goroutines of net/http's transport", n)
	}
	if n := strings.Count(stacks, "reach.passSome("); n > 0 {
		t.Errorf("%d wait with a buffer", n)
	}
	close(release)
	for range many {
		if line := <-lines; line != "ended" {
			t.Errorf("at last: %q", line)
		}
	}
	following.Wait()
}
