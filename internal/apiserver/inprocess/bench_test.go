package inprocess_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"atoll.dev/atoll/internal/apiserver/inprocess"
)

// benchedCarriers are the ways from a client to a handler of the same process.
var benchedCarriers = []struct {
	name string
	open func(*testing.B, http.Handler) http.RoundTripper
}{
	{"in-process", func(b *testing.B, h http.Handler) http.RoundTripper {
		tr := inprocess.New(context.Background())
		tr.Open(h)
		b.Cleanup(tr.Close)
		return tr
	}},
	{"http1-in-memory", openInMemory},
}

// openInMemory serves HTTP/1.1 by a listener in memory, without TLS.
func openInMemory(b *testing.B, h http.Handler) http.RoundTripper {
	listener := bufconn.Listen(64 << 10)
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(listener) }() // it ends with the error that the server is closed
	b.Cleanup(func() { server.Close() })
	return &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
		DisableCompression: true, MaxIdleConnsPerHost: 100,
	}
}

// objectText has the length of a small object of the API.
var objectText = bytes.Repeat([]byte("x"), 2000)

// BenchmarkRequest sends an object and reads one.
func BenchmarkRequest(b *testing.B) {
	for _, carrier := range benchedCarriers {
		b.Run("carrier="+carrier.name, func(b *testing.B) {
			c := &http.Client{Transport: carrier.open(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // the client checks the answer
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(objectText)
			}))}
			b.ReportAllocs()
			begin := usedCPU(b)
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodPut, "http://hub.test/api/v1/namespaces/shop/configmaps/web", bytes.NewReader(objectText))
				if err != nil {
					b.Fatal(err)
				}
				response, err := c.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				got, err := io.ReadAll(response.Body)
				response.Body.Close()
				if err != nil || len(got) != len(objectText) {
					b.Fatalf("%d bytes came: %v", len(got), err)
				}
			}
			b.ReportMetric(float64((usedCPU(b)-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkEvent passes one event of a watch.
func BenchmarkEvent(b *testing.B) {
	for _, carrier := range benchedCarriers {
		b.Run("carrier="+carrier.name, func(b *testing.B) {
			next := make(chan bool)
			body := openWatch(b, carrier.open(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.(http.Flusher).Flush()
				for {
					select {
					case <-next:
						_, _ = w.Write(objectText)
						w.(http.Flusher).Flush()
					case <-r.Context().Done():
						return
					}
				}
			})))
			got := make([]byte, len(objectText))
			b.ReportAllocs()
			begin := usedCPU(b)
			for b.Loop() {
				next <- true
				if _, err := io.ReadFull(body, got); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((usedCPU(b)-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkQuietWatches opens watches in which nothing happens.
func BenchmarkQuietWatches(b *testing.B) {
	const watches = 200
	for _, carrier := range benchedCarriers {
		b.Run("carrier="+carrier.name, func(b *testing.B) {
			for b.Loop() {
				before, routines := memoryInUse(), runtime.NumGoroutine()
				tr := carrier.open(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				}))
				var open []io.Closer
				for range watches {
					open = append(open, openWatch(b, tr))
				}
				b.ReportMetric(float64(memoryInUse()-before)/watches, "B/watch")
				b.ReportMetric(float64(runtime.NumGoroutine()-routines)/watches, "goroutines/watch")
				for _, w := range open {
					w.Close()
				}
			}
		})
	}
}

func openWatch(b *testing.B, tr http.RoundTripper) io.ReadCloser {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://hub.test/api/v1/configmaps?watch=true", nil)
	if err != nil {
		b.Fatal(err)
	}
	response, err := (&http.Client{Transport: tr}).Do(r)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { response.Body.Close() })
	return response.Body
}

// memoryInUse returns the live heap and the stacks.
func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// usedCPU returns the CPU time of this process.
func usedCPU(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
