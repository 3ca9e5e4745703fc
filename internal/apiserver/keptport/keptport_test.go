package keptport

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func newOptions(t *testing.T) Options {
	return Options{BindAddress: "127.0.0.1", Preferred: PortOf(holdPort(t)), File: filepath.Join(t.TempDir(), "port"), Flag: "--door"}
}

// holdPort returns a listener that holds a port until the test ends.
func holdPort(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func mustOpen(t *testing.T, o Options) net.Listener {
	l, err := OpenKeptPort(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// wantError opens the port, which must fail with an error that contains all the words.
func wantError(t *testing.T, o Options, words ...string) {
	t.Helper()
	l, err := OpenKeptPort(o)
	if err == nil {
		l.Close()
		t.Fatalf("port %d was opened", PortOf(l))
	}
	for _, w := range append(words, o.Flag) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not contain %q", err, w)
		}
	}
}

// TestFirstStart: a port that is held is passed over, by one that no outgoing connection takes.
func TestFirstStart(t *testing.T) {
	o := newOptions(t)
	if port := PortOf(mustOpen(t, o)); port < firstFree || port > lastFree {
		t.Errorf("port %d", port)
	}
	o = newOptions(t)
	free := holdPort(t)
	o.Preferred = PortOf(free)
	free.Close()
	if port := PortOf(mustOpen(t, o)); port != o.Preferred {
		t.Errorf("port %d, and %d was free", port, o.Preferred)
	}
}

// TestRememberedPort: a restarted hub is where clients look for it, or does not start.
func TestRememberedPort(t *testing.T) {
	o := newOptions(t)
	first := mustOpen(t, o)
	port := PortOf(first)
	wantError(t, o, strconv.Itoa(port), o.File, "end the process")
	first.Close()
	second := mustOpen(t, o)
	if PortOf(second) != port {
		t.Errorf("port %d after port %d", PortOf(second), port)
	}
	if content, err := os.ReadFile(o.File); err != nil || string(content) != strconv.Itoa(port)+"\n" {
		t.Errorf("%q, %v", content, err)
	}
	// A flag chooses another port, which is remembered.
	other := holdPort(t)
	o.Port = PortOf(other)
	wantError(t, o, strconv.Itoa(o.Port))
	other.Close()
	mustOpen(t, o).Close()
	if o.Port = 0; PortOf(mustOpen(t, o)) != PortOf(other) {
		t.Error("the chosen port is not remembered")
	}
}

// TestUnreadablePort: what is no port is not taken for a first start.
func TestUnreadablePort(t *testing.T) {
	o := newOptions(t)
	for _, content := range []string{"", "x", "70000", "-1"} {
		if err := os.WriteFile(o.File, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		wantError(t, o, o.File)
	}
	other := holdPort(t)
	other.Close()
	o.Port = PortOf(other)
	mustOpen(t, o)
}
