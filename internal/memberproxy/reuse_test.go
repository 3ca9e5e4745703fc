package memberproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// hangsUp is at the end of an answer after which the agent closes the connection.
const hangsUp = "\x00"

// answeringBy gives hops to an agent that answers one request after the other, by whichever
// connection, with these bytes; and how many requests and connections there were.
func answeringBy(t *testing.T, answers ...string) (h *lowMemoryReadTransport, asked, made *atomic.Int64) {
	t.Helper()
	asked, made = &atomic.Int64{}, &atomic.Int64{}
	h = &lowMemoryReadTransport{others: http.DefaultTransport, dial: func(context.Context, string) (net.Conn, error) {
		made.Add(1)
		hub, agent := net.Pipe()
		t.Cleanup(func() { agent.Close() })
		go func() {
			defer agent.Close()
			for in := bufio.NewReader(agent); ; {
				if len(answers) == 0 {
					return // at once
				}
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				n := int(asked.Add(1))
				if n > len(answers) {
					return
				}
				if _, err := io.WriteString(agent, strings.TrimSuffix(answers[n-1], hangsUp)); err != nil || strings.HasSuffix(answers[n-1], hangsUp) {
					return
				}
			}
		}()
		return hub, nil
	}}
	t.Cleanup(h.CloseIdleConnections)
	return h, asked, made
}

// readBody so many bytes of the answer to a request, all where that is 0, and closes it.
func readBody(t *testing.T, h *lowMemoryReadTransport, bytes int) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testwait.HangLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://uid/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := h.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if bytes == 0 {
		all, err := io.ReadAll(answer.Body)
		return string(all), err
	}
	some := make([]byte, bytes)
	_, err = io.ReadFull(answer.Body, some)
	return string(some), err
}

// TestAConnectionCarriesNothingOver: from one request to the next, which may be of another user.
func TestAConnectionCarriesNothingOver(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	const own = ok + "Content-Length: 3\r\n\r\nown"
	for what, c := range map[string]struct {
		first string
		reads int
		made  int64
	}{
		"as it should be":              {ok + "Content-Length: 2\r\n\r\nhi", 0, 1},
		"an unwanted answer":           {ok + "Content-Length: 2\r\n\r\nhi" + ok + "Content-Length: 6\r\n\r\nstolen", 0, 2},
		"one of which more is to come": {ok + "Content-Length: 8\r\n\r\nhi", 2, 2},
		"one that is to be the last":   {ok + "Connection: close\r\nContent-Length: 2\r\n\r\nhi", 0, 2},
	} {
		h, _, made := answeringBy(t, c.first, own)
		if got, err := readBody(t, h, c.reads); err != nil || got != "hi" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		if got, err := readBody(t, h, 0); err != nil || got != "own" || made.Load() != c.made {
			t.Errorf("%s: the next is answered with %q, %v, by %d connections, not %d", what, got, err, made.Load(), c.made)
		}
	}
}

// TestAnAgentIsAskedAgainOnlyWhereItCannotHaveAnswered: not one that hangs up at once, nor one
// that has begun to answer.
func TestAnAgentIsAskedAgainOnlyWhereItCannotHaveAnswered(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
	h, _, made := answeringBy(t)
	if got, err := readBody(t, h, 0); err == nil || made.Load() != 1 {
		t.Errorf("one that hangs up at once answers %q, by %d connections", got, made.Load())
	}
	h, asked, _ := answeringBy(t, ok, "HTTP/1.1 2"+hangsUp, ok)
	if got, err := readBody(t, h, 0); err != nil || got != "hi" {
		t.Errorf("at first: %q, %v", got, err)
	}
	if got, err := readBody(t, h, 0); err == nil || asked.Load() != 2 {
		t.Errorf("one that has begun to answer is asked %d times, at last for %q", asked.Load(), got)
	}
}

// only takes requests down.
type only []string

func (o *only) RoundTrip(r *http.Request) (*http.Response, error) {
	*o = append(*o, r.Method+" "+r.Header.Get("Upgrade"))
	return nil, errors.New("it was not to be asked")
}

// TestWhatMayNotBeMadeTwiceGoesByOthers: with a body, or where the connection is to become another
// one, as without.
func TestWhatMayNotBeMadeTwiceGoesByOthers(t *testing.T) {
	var others only
	h := &lowMemoryReadTransport{others: &others, dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("dialled") }}
	for _, c := range []struct{ method, upgrade, body string }{{"GET", "", ""}, {"HEAD", "", ""}, {"GET", "", "x"}, {"GET", "websocket", ""}, {"POST", "", ""}, {"DELETE", "", ""}} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://uid/x", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if c.upgrade != "" {
			r.Header.Set("Upgrade", c.upgrade)
		}
		if _, err := h.RoundTrip(r); err == nil {
			t.Errorf("%+v is answered", c)
		}
	}
	if got := strings.Join(others, ","); got != "GET ,GET websocket,POST ,DELETE " {
		t.Errorf("by others went %q", got)
	}
}

// TestFewConnectionsWaitForRequests, however many there were at once.
func TestFewConnectionsWaitForRequests(t *testing.T) {
	var h lowMemoryReadTransport
	defer h.CloseIdleConnections()
	for range 3 * idlePerCluster {
		conn, agent := net.Pipe()
		defer agent.Close()
		h.keepIdle("uid", newRequestConn(conn))
	}
	if n := len(h.idle["uid"]); n != idlePerCluster {
		t.Errorf("%d wait, of %d at most", n, idlePerCluster)
	}
}

// TestHalfOfAnAnswerIsNotTheWhole: one that the agent aborts ends for the client as it did for the
// hub.
func TestHalfOfAnAnswerIsNotTheWhole(t *testing.T) {
	for _, begun := range []string{"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "Content-Length: 10\r\n\r\nhello"} {
		h := startHub(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+begun)
			_ = conn.Close()
		}), func(string) error { return nil }, true)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/apis/atoll.dev/v1alpha1/clusters/tokyo/proxy/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = janeHeader()
		answer, err := h.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(answer.Body); err == nil {
			t.Errorf("%q is taken for all of %q", text, begun)
		}
		answer.Body.Close()
	}
}
