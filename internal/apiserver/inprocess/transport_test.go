package inprocess_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/apiserver/inprocess"
)

// carriers of requests to a handler: what holds of net/http's HTTP/2 holds in process.
var carriers = map[string]func(*testing.T, http.Handler) *http.Client{
	"HTTP/2": func(t *testing.T, h http.Handler) *http.Client {
		s := httptest.NewUnstartedServer(h)
		s.EnableHTTP2 = true
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		c := s.Client()
		to := strings.TrimPrefix(s.URL, "https://")
		next := c.Transport
		c.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Host, r.URL.Host = r.URL.Host, to
			return next.RoundTrip(r)
		})
		return c
	},
	"in process": func(t *testing.T, h http.Handler) *http.Client {
		_, c := open(t, h)
		return c
	},
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func open(t *testing.T, h http.Handler) (*inprocess.HandlerTransport, *http.Client) {
	t.Helper()
	tr := inprocess.New(context.Background())
	tr.Open(h)
	t.Cleanup(tr.Close)
	return tr, &http.Client{Transport: tr}
}

// deadline ends what hangs.
const deadline = 20 * time.Second

func newRequest(t *testing.T, method, path string, body io.Reader) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, "https://hub.test"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sendRequest a request, and read what comes.
func sendRequest(t *testing.T, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(content)
}

func echoBody(w http.ResponseWriter, r *http.Request) {
	content, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s %s %d %v %s %v", r.Method, r.URL, r.RequestURI, r.Host, r.Proto, r.ContentLength,
		r.Header["X-Asked"], content, err)
}

// unary are requests that are answered at once.
var unary = []struct {
	name, method, path string
	body               func() io.Reader
	handler            http.HandlerFunc
	status             int
	want               string
	length             int64
	header             http.Header
}{
	{name: "get", path: "/a%2Fb/c?x=1&y", handler: echoBody, status: 200, length: ofWant,
		want: "GET /a%2Fb/c?x=1&y /a%2Fb/c?x=1&y hub.test HTTP/2.0 0 [1 2]  <nil>"},
	{name: "no path", handler: echoBody, status: 200, length: ofWant, want: "GET / / hub.test HTTP/2.0 0 [1 2]  <nil>"},
	{name: "post", method: "POST", path: "/p", body: func() io.Reader { return strings.NewReader("hello") }, handler: echoBody, status: 200, length: ofWant,
		want: "POST /p /p hub.test HTTP/2.0 5 [1 2] hello <nil>"},
	{name: "post of unknown length", method: "POST", path: "/p", body: func() io.Reader { return io.MultiReader(strings.NewReader("hel"), strings.NewReader("lo")) },
		handler: echoBody, status: 200, length: ofWant, want: "POST /p /p hub.test HTTP/2.0 -1 [1 2] hello <nil>"},
	{name: "the handler says nothing", handler: func(http.ResponseWriter, *http.Request) {}, status: 200},
	{name: "the head is frozen when written", status: 418, want: "tea", length: 3, handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Answer", "early")
		w.WriteHeader(418)
		w.WriteHeader(500)
		w.Header().Set("X-Answer", "late")
		w.Header().Set("X-Other", "late")
		io.WriteString(w, "tea")
	}, header: http.Header{"X-Answer": {"early"}, "X-Other": nil, "Content-Length": {"3"}}},
	{name: "what is a connection's goes", status: 200, handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Transfer-Encoding", "chunked")
		w.Header().Set("Connection", "close")
		w.WriteHeader(200)
	}, header: http.Header{"Transfer-Encoding": nil, "Connection": nil}},
	{name: "a promised length", status: 200, want: "four", length: 4, handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		io.WriteString(w, "four")
	}},
	{name: "head", method: "HEAD", status: 200, length: 9, handler: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "not given") }},
	{name: "no content", status: 204, handler: func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(204)
		if _, err := io.WriteString(w, "x"); err != http.ErrBodyNotAllowed {
			panic(err)
		}
	}},
	{name: "wrappers of HTTP/2 find what they ask for", status: 200, handler: func(w http.ResponseWriter, _ *http.Request) {
		_, flushes := w.(interface {
			Flush()
			CloseNotify() <-chan bool
		})
		if _, hijacks := w.(http.Hijacker); hijacks || !flushes {
			w.WriteHeader(500)
		}
	}},
	{name: "early hints are not passed on", status: 200, handler: func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
	}},
}

func TestUnary(t *testing.T) {
	for carrier, carry := range carriers {
		for _, c := range unary {
			t.Run(carrier+"/"+c.name, func(t *testing.T) {
				var sent io.Reader
				if c.body != nil {
					sent = c.body()
				}
				r := newRequest(t, c.method, c.path, sent)
				r.Header["X-Asked"] = []string{"1", "2"}
				response, content := sendRequest(t, carry(t, c.handler), r)
				length := c.length
				if length == ofWant {
					length = int64(len(c.want))
				}
				if response.StatusCode != c.status || content != c.want || response.ContentLength != length || response.ProtoMajor != 2 {
					t.Errorf("got %s, %q of length %d", response.Status, content, response.ContentLength)
				}
				for key, values := range c.header {
					if got := response.Header[key]; !slices.Equal(got, values) {
						t.Errorf("%s: %q", key, got)
					}
				}
				if len(r.Header) != 1 {
					t.Errorf("the client's headers became %v", r.Header)
				}
			})
		}
	}
}

// ofWant is the length of the content that is wanted.
const ofWant = -2

func TestTheClientsRequestStaysAsItIs(t *testing.T) {
	for carrier, carry := range carriers {
		t.Run(carrier, func(t *testing.T) {
			c := carry(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				r.Header.Del("Authorization")
				r.Header.Set("X-Asked", "changed")
				r.Header["X-More"][0] = "changed"
				r.URL.Path = "/changed"
			}))
			r := newRequest(t, "GET", "/path", nil)
			r.Header = http.Header{"Authorization": {"Bearer x"}, "X-Asked": {"1"}, "X-More": {"2"}}
			sendRequest(t, c, r)
			if fmt.Sprint(r.Header) != "map[Authorization:[Bearer x] X-Asked:[1] X-More:[2]]" || r.URL.Path != "/path" {
				t.Errorf("it became %v %v", r.URL, r.Header)
			}
		})
	}
}

// key of a value in the client's context.
type key struct{}

func TestWhatTheHandlerSeesOfTheClient(t *testing.T) {
	_, c := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprint(w, host, err, r.TLS, r.Header["Accept-Encoding"], r.Context().Value(key{}))
	}))
	r := newRequest(t, "GET", "/", nil)
	_, content := sendRequest(t, c, r.WithContext(context.WithValue(r.Context(), key{}, "the client's own")))
	if want := "127.0.0.1<nil> <nil> [] <nil>"; content != want {
		t.Errorf("got %q, want %q", content, want)
	}
}

func TestMoreThanPromisedIsRefused(t *testing.T) {
	refused := make(chan error, 1)
	_, c := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		io.WriteString(w, "four")
		_, err := io.WriteString(w, "more")
		refused <- err
	}))
	response, content := sendRequest(t, c, newRequest(t, "GET", "/", nil))
	if err := <-refused; err != http.ErrContentLength || content != "four" || response.ContentLength != 4 {
		t.Errorf("the handler hears %v, the client gets %q of length %d", err, content, response.ContentLength)
	}
}

func TestBigBodiesGoBothWays(t *testing.T) {
	sent := bytes.Repeat([]byte("0123456789abcdef"), 5<<16) // 5 MiB
	for carrier, carry := range carriers {
		t.Run(carrier, func(t *testing.T) {
			c := carry(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
			response, content := sendRequest(t, c, newRequest(t, "POST", "/", bytes.NewReader(sent)))
			if response.ContentLength != -1 || content != string(sent) {
				t.Errorf("%d bytes came back, of a stated length of %d", len(content), response.ContentLength)
			}
		})
	}
}

func TestStreamsAreSeenAsTheyAreFlushed(t *testing.T) {
	for carrier, carry := range carriers {
		t.Run(carrier, func(t *testing.T) {
			events, ended := make(chan string), make(chan struct{})
			c := carry(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				w.Header().Set("X-Kind", "watch")
				w.(http.Flusher).Flush()
				for {
					select {
					case e := <-events:
						io.WriteString(w, e)
						w.(http.Flusher).Flush()
					case <-r.Context().Done():
						return
					}
				}
			}))
			r := newRequest(t, "GET", "/", nil)
			response, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if response.ContentLength != -1 || response.Header.Get("X-Kind") != "watch" {
				t.Errorf("the head is %v of length %d", response.Header, response.ContentLength)
			}
			for _, e := range []string{"one", "two", "three"} {
				events <- e
				got := make([]byte, len(e))
				if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != e {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			response.Body.Close()
			waitForClose(t, ended, "the handler ends when the body is closed")
			if _, err := response.Body.Read(make([]byte, 1)); err == nil || err == io.EOF {
				t.Errorf("a closed body is read with %v", err)
			}
		})
	}
}

func waitForClose(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(deadline):
		t.Fatalf("not in %v: %s", deadline, what)
	}
}

func TestTheClientLeaves(t *testing.T) {
	for carrier, carry := range carriers {
		for name, flushes := range map[string]bool{"before the head": false, "in a stream": true} {
			t.Run(carrier+"/"+name, func(t *testing.T) {
				came, ended := make(chan struct{}), make(chan struct{})
				c := carry(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(ended)
					if flushes {
						w.(http.Flusher).Flush()
					}
					close(came)
					<-r.Context().Done()
				}))
				r := newRequest(t, "GET", "/", nil)
				ctx, cancel := context.WithCancel(r.Context())
				go func() {
					<-came
					cancel()
				}()
				response, err := c.Do(r.WithContext(ctx))
				if err == nil {
					_, err = io.ReadAll(response.Body)
					response.Body.Close()
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("the client hears %v", err)
				}
				waitForClose(t, ended, "the handler's context ends")
			})
		}
	}
}

func TestTheClientsDeadlineEndsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lasted time.Duration
		_, c := open(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			began := time.Now()
			<-r.Context().Done()
			lasted = time.Since(began)
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := c.Do(newRequest(t, "GET", "/", nil).WithContext(ctx))
		synctest.Wait()
		if !errors.Is(err, context.DeadlineExceeded) || lasted != 5*time.Second {
			t.Errorf("the client hears %v, the handler ended after %v", err, lasted)
		}
		c.Timeout = time.Second
		_, err = c.Do(newRequest(t, "GET", "/", nil))
		synctest.Wait()
		if !errors.Is(err, context.DeadlineExceeded) || lasted != time.Second {
			t.Errorf("with a timeout of its own, the client hears %v, the handler ended after %v", err, lasted)
		}
	})
}

// TestAHandlerWaitsForItsClient: unread output is held up to a bound.
func TestAHandlerWaitsForItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chunk = 1000
		var written atomic.Int64
		_, c := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range 5000 {
				n, err := w.Write(make([]byte, chunk))
				written.Add(int64(n))
				if err != nil {
					return
				}
			}
		}))
		response, err := c.Do(newRequest(t, "GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if held := written.Load(); held > 1<<20 || held < 1<<20-chunk {
			t.Errorf("%d unread bytes were written", held)
		}
		n, err := io.Copy(io.Discard, response.Body)
		if err != nil || n != 5000*chunk {
			t.Errorf("read %d bytes: %v", n, err)
		}
		response.Body.Close()

		written.Store(0)
		if response, err = c.Do(newRequest(t, "GET", "/", nil)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := written.Load()
		response.Body.Close()
		synctest.Wait()
		if after := written.Load(); after > before+chunk {
			t.Errorf("a handler wrote %d bytes after its client had closed", after-before)
		}
	})
}

func TestPanicsAreBrokenConnections(t *testing.T) {
	silent := func(http.ResponseWriter) {}
	for name, c := range map[string]struct {
		first func(http.ResponseWriter)
		ends  func()
		says  string
	}{
		"before the head": {silent, func() { panic("on the reef\ngoroutine 1 [running]") }, "on the reef: "},
		"abort":           {silent, func() { panic(http.ErrAbortHandler) }, "abort Handler"},
		"after a write":   {func(w http.ResponseWriter) { io.WriteString(w, "half") }, func() { panic("x") }, "panicked: x"},
		"in a stream": {func(w http.ResponseWriter) {
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
		}, func() { panic("x") }, "panicked: x"},
		"a goroutine that exits": {silent, runtime.Goexit, "panicked"},
		"less than promised":     {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "9") }, func() {}, "unexpected EOF"},
	} {
		for carrier, carry := range carriers {
			if name == "a goroutine that exits" && carrier != "in process" {
				continue // there it hangs
			}
			t.Run(carrier+"/"+name, func(t *testing.T) {
				client := carry(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					c.first(w)
					c.ends()
				}))
				response, err := client.Do(newRequest(t, "GET", "/", nil))
				var content []byte
				if err == nil {
					content, err = io.ReadAll(response.Body)
					response.Body.Close()
				}
				if err == nil || len(content) > 0 && string(content) != "half" {
					t.Fatalf("got %q, %v", content, err)
				}
				if carrier != "in process" {
					return
				}
				broken := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrUnexpectedEOF)
				if !broken || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "goroutine 1") {
					t.Errorf("the client hears: %v", err)
				}
				if name == "in a stream" && string(content) != "half" {
					t.Errorf("what had been flushed came as %q", content)
				}
			})
		}
	}
}

// closing is a body that tells how often it was closed.
type closing struct {
	io.Reader
	times atomic.Int32
}

func (c *closing) Close() error {
	c.times.Add(1)
	return nil
}

func TestBodiesOfRequestsAreClosedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late error
		tr, c := open(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/panic":
				panic(http.ErrAbortHandler)
			case "/slow":
				<-r.Context().Done()
				_, late = r.Body.Read(make([]byte, 1))
			}
		}))
		for _, path := range []string{"/unread", "/panic", "/slow", "/upgrade", "/stopped"} {
			sent := &closing{Reader: strings.NewReader("content")}
			r := newRequest(t, "POST", path, sent)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if path == "/upgrade" {
				r.Header.Set("Upgrade", "SPDY/3.1")
			}
			if path == "/stopped" {
				tr.Stop()
			}
			if response, err := c.Do(r.WithContext(ctx)); err == nil {
				response.Body.Close()
			}
			cancel()
			synctest.Wait()
			if n := sent.times.Load(); n != 1 {
				t.Errorf("%s: closed %d times", path, n)
			}
		}
		if late != http.ErrBodyReadAfterClose {
			t.Errorf("a handler reads for a client that left, and hears %v", late)
		}
	})
}

func TestNothingIsUpgraded(t *testing.T) {
	_, c := open(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it came to the handler") }))
	r := newRequest(t, "POST", "/api/v1/namespaces/a/pods/b/exec", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	if _, err := c.Do(r); err == nil || !strings.Contains(err.Error(), "has no connection that could become one of SPDY/3.1") {
		t.Errorf("got %v", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	for carrier, carry := range carriers {
		t.Run(carrier, func(t *testing.T) {
			c := carry(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Path", r.URL.Path)
				io.Copy(w, r.Body)
			}))
			var group sync.WaitGroup
			for i := range 20 {
				group.Go(func() {
					for j := range 20 {
						path := fmt.Sprintf("/%d/%d", i, j)
						response, content := sendRequest(t, c, newRequest(t, "POST", path, strings.NewReader(strings.Repeat(path, 100))))
						if response.Header.Get("X-Path") != path || content != strings.Repeat(path, 100) {
							t.Errorf("%s: got %v %q", path, response.Header, content)
						}
					}
				})
			}
			group.Wait()
		})
	}
}
