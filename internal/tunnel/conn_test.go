package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

// half is one end of a stream in memory, as gRPC's ends are: a sender waits for the receiver, and
// both end with the context.
type half struct {
	ctx     context.Context
	out, in chan []byte
}

func (h *half) Send(p *wrapperspb.BytesValue) error {
	select {
	case h.out <- bytes.Clone(p.GetValue()):
		return nil
	case <-h.ctx.Done():
		return io.EOF
	}
}

func (h *half) Recv() (*wrapperspb.BytesValue, error) {
	select {
	case b := <-h.in:
		return wrapperspb.Bytes(b), nil
	case <-h.ctx.Done():
		return nil, io.EOF
	}
}

// newPipe makes both ends of a tunnel. Closing one ends the stream.
func newPipe() (a, b *Conn, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	up, down := make(chan []byte), make(chan []byte)
	a = New(&half{ctx: ctx, out: up, in: down}, cancel, "a")
	b = New(&half{ctx: ctx, out: down, in: up}, cancel, "b")
	var pumps sync.WaitGroup
	pumps.Go(func() { _ = a.PumpMessages() })
	pumps.Go(func() { _ = b.PumpMessages() })
	return a, b, func() {
		_, _ = a.Close(), b.Close() // they give no error
		pumps.Wait()
	}
}

func TestNothingIsTakenThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, stop := newPipe()
		defer stop()
		sent := 0
		go func() {
			for {
				if _, err := a.Write([]byte("piece")); err != nil {
					return
				}
				sent++
			}
		}()
		synctest.Wait()
		if sent > 1 {
			t.Errorf("%d pieces were taken without a reader", sent)
		}
		if _, err := io.ReadFull(b, make([]byte, 25)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if sent < 5 || sent > 6 {
			t.Errorf("%d pieces were taken when five were read", sent)
		}
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, stop := newPipe()
		defer stop()
		a.CloseWhenIdle(time.Hour)
		go func() { _, _ = io.Copy(io.Discard, b) }()
		for range 10 {
			time.Sleep(50 * time.Minute)
			if _, err := a.Write([]byte("x")); err != nil {
				t.Fatalf("closed although it was used: %v", err)
			}
		}
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if isClosed(a.closed) {
			t.Fatal("closed too early")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("an idle connection: %v", err)
		}
	})
}

func TestAWriteDeadlineEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, stop := newPipe()
		defer stop()
		if err := a.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err := a.Write(make([]byte, 1<<20))
		if err == nil || time.Since(began) != time.Minute {
			t.Errorf("a write without a reader: %v after %v", err, time.Since(began))
		}
	})
}

func TestAPassedReadDeadlineMayBeMovedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, stop := newPipe()
		defer stop()
		_ = b.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after the deadline: %v", err)
		}
		_ = b.SetReadDeadline(time.Time{})
		go func() { _, _ = a.Write([]byte("x")) }()
		if n, err := b.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("after it was moved on: %d, %v", n, err)
		}
	})
}

// TestHTTP: what stands on it, a server and a client that upgrades its connection too.
func TestHTTP(t *testing.T) {
	body := make([]byte, 3<<20)
	_, _ = rand.Read(body)
	accept := make(chan net.Conn)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.Copy(w, r.Body)
			return
		}
		w.Header().Set("Upgrade", "echo")
		w.Header().Set("Connection", "Upgrade")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, buffered)
	})}
	go func() { _ = server.Serve(listening(accept)) }()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		a, b, stop := newPipe()
		t.Cleanup(stop)
		accept <- b
		return a, nil
	}}}
	r, err := client.Post("http://member/", "", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r.Body)
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%d bytes of %d came back, %v", len(got), len(body), err)
	}
	up, err := http.NewRequest(http.MethodGet, "http://member/", nil)
	if err != nil {
		t.Fatal(err)
	}
	up.Header.Set("Upgrade", "echo")
	up.Header.Set("Connection", "Upgrade")
	if r, err = client.Do(up); err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %v, %v", r, err)
	}
	duplex := r.Body.(io.ReadWriteCloser)
	defer duplex.Close()
	go func() { _, _ = duplex.Write(body) }()
	got = make([]byte, len(body))
	if _, err := io.ReadFull(duplex, got); err != nil || !bytes.Equal(got, body) {
		t.Fatalf("after the upgrade: %v", err)
	}
}

type listening chan net.Conn

func (l listening) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l listening) Close() error { close(l); return nil }
func (listening) Addr() net.Addr { return addr("test") }
