package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/testwait"
)

// TestALogThatBreaksOffIsNotTheWholeLog: its reader gets an error.
func TestALogThatBreaksOffIsNotTheWholeLog(t *testing.T) {
	gone := errors.New("the agent has gone")
	for _, c := range []struct {
		what, resource, subresource string
		ends                        error
		left, broken                bool // the client has gone; the answer is to be aborted
	}{
		{"a log", "pods", "log", io.EOF, false, false},
		{"one that breaks off", "pods", "log", gone, false, true},
		{"one without a reader", "pods", "log", gone, true, false},
		{"something else", "pods", "", gone, false, false},
	} {
		for _, follow := range []bool{false, true} {
			text, err := readLog(t, &request.RequestInfo{IsResourceRequest: true, Resource: c.resource, Subresource: c.subresource}, func(ctx context.Context, leave func()) io.ReadCloser {
				if !c.left {
					leave = func() {}
				}
				body := &truncationTrackingBody{io.NopCloser(io.MultiReader(strings.NewReader("line 1\n"), failing{leave, c.ends})), ctx}
				if follow {
					return &followedLogBody{truncationTrackingBody: body}
				}
				return body
			}, func() {})
			if (err != nil) != c.broken || !c.broken && text != "line 1\n" {
				t.Errorf("%s, followed %t: read is %q, %v", c.what, follow, text, err)
			}
		}
	}
}

// TestWhoFollowsALogWaitsOutsideTheAPIServersHandler, whose stack and buffer are large, and
// which closes what it is done with.
func TestWhoFollowsALogWaitsOutsideTheAPIServersHandler(t *testing.T) {
	returned, closed := make(chan struct{}), 0
	text, err := readLog(t, &request.RequestInfo{IsResourceRequest: true, Resource: "pods", Subresource: "log"}, func(ctx context.Context, _ func()) io.ReadCloser {
		body := io.MultiReader(strings.NewReader("line 1\n"), awaiting(returned), strings.NewReader("line 2\n"))
		return &followedLogBody{truncationTrackingBody: &truncationTrackingBody{watched{body, func() { closed++ }}, ctx}}
	}, func() { close(returned) })
	if err != nil || text != "line 1\nline 2\n" || closed != 1 {
		t.Errorf("it is passed on as %q, %v, and closed %d times", text, err, closed)
	}
}

// readLog through Whole; its body is made with what has its reader leave. returned is called once
// the API's handler is done.
func readLog(t *testing.T, info *request.RequestInfo, body func(ctx context.Context, leave func()) io.ReadCloser, returned func()) (string, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		ctx, leave := context.WithCancel(r.Context())
		defer leave()
		AbortTruncatedLogs(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer returned()
			stream := body(r.Context(), leave)
			defer stream.Close()
			_, _ = io.Copy(w, stream) // as the API server does
		})).ServeHTTP(w, r.WithContext(request.WithRequestInfo(ctx, info)))
	}))
	defer server.Close()
	answer, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// watched body.
type watched struct {
	io.Reader
	closed func()
}

func (w watched) Close() error { w.closed(); return nil }

// awaiting gives nothing, once it is closed.
type awaiting <-chan struct{}

func (a awaiting) Read([]byte) (int, error) {
	select {
	case <-a:
		return 0, io.EOF
	case <-time.After(testwait.HangLimit):
		return 0, errors.New("nothing happens")
	}
}

type failing struct {
	first func()
	err   error
}

func (f failing) Read([]byte) (int, error) { f.first(); return 0, f.err }
